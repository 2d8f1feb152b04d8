/* SPDX-License-Identifier: MIT */
/* What the files of the server share.
 *
 * The HTTP thread reads and checks requests and puts jobs into a queue; the worker thread runs their texts and fills
 * the job's reply. A job that waits has its connection suspended; the worker resumes it when there is something to
 * send. Fields of a job that both threads touch are marked; they are guarded by the server's lock. Long requests are
 * read and checked by a third thread in the place of the HTTP thread (aside.c), one at a time. */
#ifndef PAL_SERVE_INSIDE_H
#define PAL_SERVE_INSIDE_H

#include <jansson.h>
#include <microhttpd.h>
#include <pthread.h>
#include <time.h>

#include "chat/chat.h"
#include "serve/cache.h"
#include "serve/serve.h"

enum {
    SERVE_MOST_TEXTS = 4096,
    SERVE_MOST_STOPS = 16,
    SERVE_MARKS = 5,
    SERVE_UNSENT = 1 << 20,
    SERVE_BYTES_A_SECOND = 16384, /* a body that comes slower than this is late, or an answer that is read slower */
    SERVE_NAME = 65,
    SERVE_HELD_BODIES = 16, /* requests that are held take so many times --max-body together, or the bytes below */
    SERVE_HELD_LEAST = 64 << 20,
    SERVE_LONG_BODY = 64 << 10 /* bytes; longer ones are read by their own thread: a millisecond or two */
};

/* What is found and what is expected. */
#define SERVE_LARGE_ANSWER \
    "the answer takes %zu bytes, expected at most %zu (--max-answer): ask for fewer texts, tokens or 'logprobs'"

struct serve_model {
    char *name;
    pal_bundle bundle;
    pal_engine *engine;                 /* worker; NULL: not made yet */
    const struct serve_model *plain_of; /* with plasticity off: the model whose weights it has; NULL: none */
    pal_chat *chat;                       /* shared with its plain version */
    char chat_error[256];                 /* why there is none */
    pal_tokenizer_scratch *aside_scratch; /* of the thread that reads long requests */
    time_t created;
    int context;                      /* tokens that attention layers hold; 0: no attention */
    size_t session_bytes, file_bytes; /* of a text that runs and fills the context; of a memory's file */
    size_t fixed_bytes, page_bytes;   /* of a text, whatever its length; of 64 tokens of it */
};

/* A place in a memory's past to go back to: its own file. */
typedef struct serve_mark {
    char name[SERVE_NAME];
    int number; /* in the file's name */
    int64_t tokens;
    time_t created;
    size_t bytes;
    uint64_t version; /* of the file, as a memory's */
} serve_mark;

/* A memory that is kept: a file DIR/ID.state with the state, which is never changed but replaced, and DIR/ID.json with
 * what people call it. Everything is guarded by the server's lock. */
typedef struct serve_memory {
    struct serve_memory *next;
    char id[20];
    char *name;           /* NULL: none */
    char origin[8];       /* "text", "fork" or "upload" */
    char parent[20];      /* of a fork */
    serve_model *model;   /* NULL: a model that is not served now */
    uint64_t fingerprint; /* of its model */
    time_t created, changed;
    int64_t tokens;
    size_t bytes;
    uint64_t version; /* of its file: the same for files that are the same file; 0: being made */
    serve_mark *marks;
    size_t mark_count, mark_room;
    int next_mark;
    bool listed, deleted; /* neither: being made */
    bool has_file;
    bool updating;
    int users; /* jobs and uploads that hold it */
} serve_memory;

typedef struct serve_store {
    char *directory;
    bool temporary; /* removed at the end */
    int lock_file;
    size_t limit, used; /* bytes of files; a fork or mark counts in full */
    serve_memory *list; /* newest first */
} serve_store;

typedef struct serve_token {
    int32_t id;
    bool prompt;
    double logprob, variance;
    size_t top, top_count; /* in the text's alternatives */
} serve_token;

typedef struct serve_job serve_job;
typedef struct serve_observe serve_observe;

/* One of a job's answers. The worker's alone, once the job is in the queue. */
typedef struct serve_text {
    serve_job *job;
    int index;
    const pal_ids *prompt;
    pal_slice prompt_text;
    uint64_t seed;
    pal_session *session;
    size_t promised; /* bytes of pages that it may come to hold, while it has a session */
    size_t *cuts;    /* where pieces of its prompt end, besides the grid */
    size_t cut_count;
    size_t marks[SERVE_MARKS]; /* ... and where snapshots are worth most: near the ends of the last messages */
    bool done;
    pal_finish finish;
    char error[256];
    int status;     /* of the error */
    pal_bytes text; /* written, and with echo the prompt in front of it */
    pal_reader said; /* of a chat: the same as parts of a message */
    serve_token *tokens;
    size_t token_count, token_room;
    pal_alternative *top;
    size_t top_count, top_room;
    int64_t written;
    double first;                  /* when its first token was written */
    pal_ids ids;                   /* written */
    bool read;                     /* its prompt */
    bool again;                    /* it is read again without its stop string, to become a memory */
    size_t told_text, told_tokens; /* of a stream */
    size_t told_characters;        /* of the tokens that were reported */
    bool begun;                    /* a token among them has text */
    size_t told_content, told_reasoning, told_calls; /* of a chat's stream */
    bool told_role, told_finish, told_end;
} serve_text;

struct serve_job {
    pal_server *server;
    serve_model *model;
    serve_job *next; /* in the queue, or among those that run */
    bool chat, stream, echo, usage, logprobs, variance;
    bool prompt_is_text; /* not ids */
    int alternatives;
    char memory_id[20];   /* asked for; empty: none */
    bool update;          /* the memory is replaced by what the text leaves */
    bool makes;           /* POST /v1/memories: the answer is the memory */
    serve_memory *memory; /* both threads; from the moment the job is in the queue */
    char id[40];
    time_t created;
    double arrived;
    pal_session_options options;
    char **stop; /* own */
    pal_grammar *grammar; /* own; NULL: none */
    const pal_chat *form; /* of a chat */
    json_t *tools;        /* of a chat, own; NULL: none */
    size_t tools_bytes;   /* of RAM, about */
    bool thinking;        /* the prompt of a chat begins the model's thinking */
    pal_ids *prompts;
    pal_bytes *prompt_texts;
    size_t prompt_count;
    serve_text *texts; /* prompts x n */
    size_t count, started, ended;
    size_t held;            /* bytes of all this, as the server counts them */
    size_t answer;          /* bytes of RAM that it has for its answer; both threads, once it is in the queue */
    size_t taken;           /* bytes that it takes by now: the worker's */
    size_t n;               /* texts of one prompt: the first reads it */
    pal_state *shared;      /* what the others begin with: the worker's */
    bool begun;             /* it was taken from the queue */
    bool caches;            /* prompts may be known already, and are known later */
    serve_observe *observe; /* NULL: no one looks into the memory */
    int64_t prompt_tokens, cached_tokens, written_tokens;
    pal_guessed guessed;
    /* Both threads. */
    struct MHD_Connection *connection; /* NULL: gone */
    int socket;
    bool suspended, cancelled;
    bool finished;   /* the worker is through with it */
    bool full;       /* a stream of which too much waits to be read, when it was looked at last ... */
    double looked;   /* ... which was then */
    double behind;   /* seconds that this took, less those that what was read is worth */
    int status;      /* of a whole reply */
    pal_bytes reply; /* of it, or of a stream what was not sent yet, after ... */
    size_t sent;     /* ... bytes of it that were (unsent.h); 0 unless it is a stream */
};

typedef struct serve_counts {
    uint64_t requests, cached_tokens, refused, errors, prompt_tokens, written_tokens, cancelled;
} serve_counts;

/* What /metrics shows as histograms, and how many values fell into each bucket. */
typedef enum serve_histogram {
    SERVE_QUEUE_SECONDS,
    SERVE_FIRST_TOKEN_SECONDS,
    SERVE_TOKEN_SECONDS,
    SERVE_PROMPT_TOKENS,
    SERVE_CACHED_RATIO,
    SERVE_HISTOGRAMS
} serve_histogram;
enum { SERVE_BUCKETS = 14 };
typedef struct serve_measured {
    uint64_t in[SERVE_BUCKETS + 1];
    double sum;
} serve_measured;

/* A socket, and what it owes us: a request's headers or body. */
typedef struct serve_connection {
    struct serve_connection *next, *previous;
    int socket;
    bool owes;
    bool reads; /* it owes us to read an answer */
    double since;
    size_t bytes; /* of the body that came and was taken, or of the answer */
} serve_connection;

struct pal_server {
    pal_serve_options options;
    const pal_context *cx;
    serve_model *models; /* those that were given, then those of them that can be plain, plain */
    int count, given;
    struct MHD_Daemon *daemon;
    int port;
    double started;
    serve_cache cache;  /* the worker's, like the next two */
    pal_session *spare; /* the last that ended, for the next text of its model; NULL: none */
    const serve_model *spare_model;
    pthread_t worker, reader;
    bool working, reading; /* the thread runs */
    pthread_mutex_t lock;
    pthread_cond_t wake, wake_aside;
    /* Guarded. */
    bool stopping;
    serve_job *queue, *running;
    struct serve_exchange *aside; /* long requests that wait to be read */
    int queued, texts_running, aside_count;
    uint64_t next_id;
    serve_counts counts;
    serve_measured measured[SERVE_HISTOGRAMS];
    pal_engine_counts engine; /* summed over models, as of the last step */
    size_t cache_bytes, page_bytes, cache_count; /* as of the last step or text that began: without pages; pages */
    serve_connection *connections;
    int connection_count, answering;
    size_t held; /* bytes of bodies and of prompts, of requests that come, wait or run; of long answers next to jobs' */
    serve_store store;
    size_t session_bytes; /* of texts that run, with the pages that they may come to hold */
    size_t session_fixed; /* ... without pages */
    size_t answers;       /* bytes that answers may take, of jobs that run or whose answers are not read yet */
};

/* A body that goes to a file as it comes. */
typedef struct serve_upload {
    serve_memory *memory;
    int file;
    size_t size, most;
    int status; /* what went wrong; 0: nothing */
    char error[256];
} serve_upload;

/* What became of a request that was read aside. */
typedef struct serve_aside {
    struct MHD_Response *response; /* NULL: none */
    bool handed;                   /* to a job: the exchange must not be touched any more */
} serve_aside;

/* One request as HTTP sees it. */
typedef struct serve_exchange {
    pal_server *server;
    struct MHD_Connection *connection;
    const struct serve_route *route;
    const char *method;
    char *path;
    char parts[2][SERVE_NAME + 1]; /* what stands where the route has {}; one that is cut is not a name of ours */
    pal_bytes body;
    serve_upload *upload;
    bool answered;
    bool cut; /* answered in the midst of its body, of whose rest `ignored` bytes came */
    size_t ignored;
    size_t held;       /* bytes of its body, later of a long answer, as the server counts them */
    bool complete;     /* its body has come */
    const char *allow; /* of a 405 */
    int status;
    double arrived;
    serve_job *job;
    serve_aside *aside; /* NULL: the HTTP thread has it */
    bool was_aside;
    struct MHD_Response *response; /* made aside */
    struct serve_exchange *next_aside;
} serve_exchange;

/* assets.c: the page. A file of web/, which the build turned into an array; the list ends with a NULL path. */
typedef struct serve_asset {
    const char *path; /* "/index.html" */
    const unsigned char *data;
    size_t size;
    const char *etag;
} serve_asset;
extern const serve_asset serve_assets[];
bool serve_has_asset(const pal_server *server, const char *path);

/* answers.c. Each returns what an access handler returns. */
typedef enum MHD_Result serve_result;
serve_result serve_reply(serve_exchange *x, int status, const char *type, const char *text, size_t size);
serve_result serve_send(serve_exchange *x, int status, const char *type,
                        struct MHD_Response *response);                      /* destroys it */
serve_result serve_reply_json(serve_exchange *x, int status, json_t *value); /* steals value */
serve_result serve_reply_text(serve_exchange *x, int status, char *text);    /* JSON; steals text, of malloc or NULL */
/* An error as OpenAI spells it. param: the field that is wrong, or NULL. */
serve_result serve_error(serve_exchange *x, int status, const char *param, const char *format, ...) PAL_PRINTF(4, 5);
json_t *serve_error_json(int status, const char *param, const char *message);
/* Answers with an error in the midst of a body, and ends the connection. What still comes is ignored for a while: a
 * client that writes into a broken connection would not read the answer. */
void serve_cut_off(serve_exchange *x, int status, const char *message);

/* server.c. Counts bytes of a request that are held; false: there are too many already. With the lock. */
bool serve_hold(pal_server *s, size_t bytes);
extern const char serve_too_many[]; /* the sentence for that */
/* The body as a JSON object, or NULL after an answer (*result). The text of it goes. */
json_t *serve_body(serve_exchange *x, serve_result *result);
/* The model that "model" names; NULL after an answer. With one model every name is fine. */
serve_model *serve_find_model(serve_exchange *x, const json_t *root, serve_result *result);
serve_model *serve_find_named(serve_exchange *x, const char *name, serve_result *result); /* NULL: no name was given */
pal_status serve_model_engine(pal_server *s, serve_model *model, pal_error *err); /* the worker's: makes its engine */

/* aside.c */
serve_result serve_read_aside(serve_exchange *x);  /* suspends its connection; 429 when too many wait */
serve_result serve_after_aside(serve_exchange *x); /* sends what was answered there */
bool serve_aside_start(pal_server *server);

/* fields.c: numbers of requests, each checked. False: *x was answered with the field's name. Absent and null leave *out
 * as it is. */
typedef struct serve_fields {
    serve_exchange *x;
    const json_t *root;
    serve_result result;
    const char *prefix; /* of the fields' names in errors; NULL: none */
} serve_fields;
bool serve_integer(serve_fields *f, const char *name, int64_t low, int64_t high, int64_t *out);
bool serve_number(serve_fields *f, const char *name, double low, double high, double *out);
bool serve_boolean(serve_fields *f, const char *name, bool *out);
bool serve_wrong(serve_fields *f, const char *name, const char *expected); /* answers; returns false */
#ifdef __clang_analyzer__                                                  /* as for pal_fail */
#define serve_wrong(f, name, expected) (serve_wrong(f, name, expected), false)
#define serve_no_memory(f)             (serve_no_memory(f), false)
#endif
bool serve_no_memory(serve_fields *f);                                      /* answers 500; returns false */
bool serve_failed(serve_fields *f, const char *name, const pal_error *err); /* 500 without memory, else 400; false */
/* A text's ids, with the scratch of the thread that reads the request. */
pal_status serve_encode(const serve_exchange *x, const serve_model *model, const void *text, size_t size,
                        const pal_encode_options *options, pal_ids *ids, pal_error *err);
/* Sampling, stops, seed, stream, n, ...: what completions and chats share. What a chat's response_format asks for is
 * the chat's matter, which knows whether the model thinks first. */
bool serve_common(serve_fields *f, serve_job *job, int64_t *n);
/* What response_format asks for: a schema, any object, or neither. */
bool serve_format(serve_fields *f, const json_t **schema, bool *object);
/* Tokens to write, by one name or another (NULL: there is none), within --max-tokens. */
bool serve_max_tokens(serve_fields *f, serve_job *job, int usual, const char *name, const char *other);

/* Reads a request for text and runs it: what completions and chats share. `read` fills the job from the fields. */
typedef bool serve_reader(serve_fields *f, serve_job *job, int64_t *n);
serve_result serve_text_request(serve_exchange *x, serve_reader *read);

/* store.c: memories as files. All with the lock, except for open and close. */
pal_status serve_store_open(pal_server *server, pal_error *err);
void serve_store_close(pal_server *server);
void serve_memory_path(const pal_server *s, const serve_memory *m, int mark, char path[4096]); /* mark 0: the newest */
/* A memory with an id and no file yet, which holds room for one; NULL: no room (*status 507) or no memory (500). Its
 * first user is the caller. */
serve_memory *serve_memory_new(pal_server *s, serve_model *model, const char *name, const char *origin, int *status);
serve_memory *serve_memory_find(pal_server *s, const char *id); /* NULL: none */
serve_mark *serve_mark_find(const serve_memory *m, const char *name);
void serve_memory_leave(pal_server *s, serve_memory *m); /* a user goes; one that was not listed goes with the last */
pal_status serve_memory_link(pal_server *s, const char *from, const char *to, pal_error *err); /* replaces `to` */
/* Its file is there, or has changed: writes what is known of it, and lists it. */
pal_status serve_memory_keep(pal_server *s, serve_memory *m, pal_error *err);
void serve_memory_delete(pal_server *s, serve_memory *m);
pal_status serve_mark_add(pal_server *s, serve_memory *m, const char *name, int *status, pal_error *err);
pal_status serve_mark_remove(pal_server *s, serve_memory *m, serve_mark *mark, pal_error *err);
json_t *serve_memory_json(const serve_memory *m);
void serve_hide_paths(const pal_server *s, char *sentence); /* for clients: files without their directory */

/* memories.c */
bool serve_upload_begin(serve_exchange *x, serve_result *result); /* false: it was answered */
void serve_upload_take(serve_upload *upload, const void *data, size_t size);
void serve_upload_end(serve_exchange *x); /* drops what became nothing */

/* metrics.c */
void serve_measure(pal_server *server, serve_histogram which, double value); /* with the lock */

/* cuts.c. Where the pieces of a text's prompt end, which its ids alone decide; false: no memory. */
bool serve_cut(serve_text *text);

/* request_log.c */
void serve_log_request(const serve_exchange *x);

/* connections.c */
typedef enum serve_stage { SERVE_HEADERS, SERVE_BODY, SERVE_ANSWERING, SERVE_SENDING } serve_stage;
void serve_connection_notify(void *user, struct MHD_Connection *connection, void **context,
                             enum MHD_ConnectionNotificationCode code);
/* What its client owes now; bytes: that came, or of an answer that it has to read. */
void serve_connection_stage(serve_exchange *x, serve_stage stage, size_t bytes);
/* Whether a reader has closed its end, which the HTTP library does not notice while a connection is suspended; bytes
 * that it sent before do not matter. */
bool serve_hung_up(int socket);
void serve_connections_watch(pal_server *server); /* ends who is late, or gone; with the lock */

/* jobs.c */
serve_job *serve_job_new(serve_exchange *x, serve_model *model);
void serve_job_free(serve_job *job);
/* Queues it and suspends its connection, or begins its stream. 429 when the queue is full. Owns the job from then on.
 */
serve_result serve_job_run(serve_exchange *x, serve_job *job, int64_t n);
serve_result serve_job_answer(serve_exchange *x);    /* after a resume */
void serve_job_leave(serve_job *job);                /* its connection is gone */
void serve_job_release(serve_job *job);              /* what it holds is not counted any more; with the lock */
bool serve_job_event(serve_job *job, json_t *value); /* into its stream; steals value */
size_t serve_token_bytes(const serve_job *job, const pal_token *token); /* that its answer takes for one */

/* observe.c. The worker's, all but free; false: no memory. */
void serve_observe_free(serve_observe *observe); /* NULL is fine */
void serve_observe_view(serve_observe *observe); /* takes a new view between steps; with the lock */
/* How many of a prompt's first tokens a copy may have read, plus one; further options of the session. */
size_t serve_observe_known(const serve_observe *observe);
void serve_observe_options(serve_observe *observe, pal_session_options *options);
void serve_observe_ready(serve_text *text, const pal_state *known); /* its session is about to begin */
bool serve_observe_begin(serve_text *text);                         /* ... has begun */
bool serve_observe_on_token(serve_text *text, const pal_token *token);
bool serve_observe_on_read(serve_text *text, const pal_state *state);
bool serve_observe_last_map(serve_text *text); /* its session is about to go */
bool serve_observe_publish(serve_text *text);  /* into the job's reply; with the lock */

/* worker.c */
void serve_drop_spare(pal_server *server);
/* Bytes of all that is kept and all that runs, pages counted once, with those that running texts may still ask for. */
size_t serve_bytes_taken(const pal_server *server);
bool serve_worker_start(pal_server *server);

/* completions.c, chat.c: what a job's texts say, as replies. */
/* A tokenizer of numbers would read one that is too large as several. */
extern const char serve_numbers[]; /* what is expected */
bool serve_numbers_fit(const pal_tokenizer *tok, const char *text);
bool serve_prompts(serve_fields *f, serve_job *job, const char *name); /* a text, ids, or lists of either */
json_t *serve_completion_json(const serve_job *job);
json_t *serve_chat_json(const serve_job *job);
/* A chunk of a stream with what a text has to say since the last one. */
json_t *serve_completion_chunk(serve_text *text);
json_t *serve_chat_chunk(serve_text *text);
/* Whether there is a chunk: of a call that has begun nothing is said, and the reason of the end comes alone. */
bool serve_chat_has_news(const serve_text *text);
json_t *serve_usage(const serve_job *job);
json_t *serve_counts_json(const serve_job *job); /* usage alone */
serve_reader serve_read_completion, serve_read_chat;
const char *serve_finish(const serve_text *text);
json_t *serve_real(double x); /* null where it is not a number */

typedef serve_result serve_handler(serve_exchange *x);
typedef struct serve_route {
    const char *method, *path;
    serve_handler *run;
    bool open;  /* needs no key */
    bool aside; /* takes a while: run where long requests are read */
} serve_route;
/* The number after ? that has this name; false: it was answered. Absent leaves *out as it is. */
bool serve_query(serve_exchange *x, const char *name, int64_t low, int64_t high, int64_t *out, serve_result *result);

serve_handler serve_attribution;
serve_handler serve_recall, serve_runs, serve_run_metrics, serve_asset_get, serve_observe_post, serve_observe_change,
    serve_completions, serve_chat, serve_models, serve_model_get, serve_health, serve_metrics, serve_openapi,
    serve_tokenize, serve_detokenize, serve_tokenizer_info, serve_memories, serve_memories_make, serve_memory_get,
    serve_memory_name, serve_memory_drop, serve_memory_file, serve_memory_mark, serve_mark_drop, serve_memory_rollback;

#endif
