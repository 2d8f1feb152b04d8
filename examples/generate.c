/* SPDX-License-Identifier: MIT */
/* Opens a model with its tokenizer and continues a prompt, printing text as it comes.
 *     cc generate.c $(pkg-config --cflags --libs palimpsa) -o generate && ./generate runs/talk 'ROMEO:' */
#include <palimpsa/palimpsa.h>
#include <stdio.h>
#include <string.h>

static void print(void *user, const pal_token *t) {
    fwrite(t->text.data, 1, t->text.size, user);
    fflush(user);
}

int main(int argc, char **argv) {
    pal_context *cx = NULL;
    pal_bundle model = { 0 };
    pal_ids prompt = { 0 };
    pal_engine *engine = NULL;
    pal_session *session = NULL;
    pal_error err;
    if (argc != 3) return fprintf(stderr, "usage: generate MODEL PROMPT\n"), 2;
    const pal_session_options options = {
        .sampling = { .temperature = 0.8 }, .seed = 1, .max_tokens = 200, .on_token = print, .user = stdout
    };
    const bool failed = pal_context_new(&cx, 0, NULL, &err) || pal_bundle_open(&model, argv[1], NULL, NULL, cx, &err) ||
                        pal_tokenizer_encode(model.tokenizer, model.scratch, argv[2], strlen(argv[2]), NULL, &prompt,
                                             &err) ||
                        pal_engine_new(&engine, model.model, model.tokenizer, cx, NULL, &err) ||
                        pal_session_new(&session, engine, &err) ||
                        pal_session_begin(session, prompt.data, prompt.count, &options, &err);
    if (failed) fprintf(stderr, "%s\n", err.text);
    else
        while (pal_engine_step(engine)) {
        }
    if (!failed) putchar('\n');
    pal_session_free(session);
    pal_engine_free(engine);
    pal_ids_free(&prompt);
    pal_bundle_close(&model);
    pal_context_free(cx);
    return failed ? 2 : 0;
}
