/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <unistd.h>
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "base/alloc.h"
#include "base/context.h"
#include "base/log.h"
#include "base/nearest.h"
#include "cli.h"
#include "format/json.h"
#include "ranks.h"
#include "stop.h"

static const cli_command commands[] = {
    { "train", "train a model, or resume a training run", cmd_train, true },
    { "sweep", "train a grid of models, learning rates and seeds", cmd_sweep, true },
    { "compare", "compare the models of a sweep, with intervals and tests", cmd_compare },
    { "generate", "continue a text; save and load memories", cmd_generate },
    { "serve", "serve models over HTTP, with a page to look into them", cmd_serve },
    { "chat-template", "render messages with a chat template", cmd_chat_template },
    { "eval", "measure perplexity, or run standard tasks", cmd_eval, true },
    { "selftest", "check this machine's numbers against recorded ones", cmd_selftest },
    { "inspect", "show what a model is and what it needs", cmd_inspect },
    { "convert", "convert checkpoints; make layers metaplastic", cmd_convert },
    { "needle", "make long documents that train or test retrieval", cmd_needle },
    { "tokenize", "turn text into ids and back; learn a vocabulary", cmd_tokenize },
    { "bench", "measure speed next to the machine's limits", cmd_bench, true },
    { "plot", "draw runs as a figure or a report", cmd_plot },
    { "devices", "list the devices that can compute in place of the CPU", cmd_devices },
    { "version", "print the version and the processor features in use", cmd_version },
};

static void print_warning(void *user, const char *sentence) {
    (void)user;
    if (pal_comm_is_root(ranks_comm())) fprintf(stderr, "palimpsa: warning: %s\n", sentence);
}

static void print_usage(FILE *to) {
    fputs("palimpsa: train, run and look into linear-attention language models on CPUs\n\n"
          "usage: palimpsa COMMAND [options]\n\ncommands:\n",
          to);
    for (size_t i = 0; i < PAL_COUNT(commands); i++) fprintf(to, "  %-13s %s\n", commands[i].name, commands[i].summary);
    fputs("\nexamples:\n"
          "  palimpsa generate models/shakespeare.gguf --prompt 'ROMEO:'\n"
          "  palimpsa inspect models/recall --open\n"
          "  palimpsa train --recipe shakespeare --data input.txt --model palimpsa-m \\\n"
          "      --out runs/talk\n"
          "\n'palimpsa COMMAND --help' explains a command.\n",
          to);
}

static int run_by_ranks(const cli_command *command, int argc, char **argv) {
    const int code = command->by_ranks ? ranks_begin() : CLI_OK;
    return code ? code : command->run(argc, argv);
}

/* argv begins with the command's name. */
static int run_command(int argc, char **argv) {
    const char *names[PAL_COUNT(commands) + 1] = { 0 };
    for (size_t i = 0; i < PAL_COUNT(commands); i++) {
        if (strcmp(argv[0], commands[i].name) == 0) return run_by_ranks(&commands[i], argc, argv);
        names[i] = commands[i].name;
    }
    static const char *const others[][2] = {
        { "chat", "generate MODEL --chat --interactive" }, { "run", "generate MODEL --interactive" },
        { "quantize", "convert SRC DST --dtype TYPE" },    { "quantise", "convert SRC DST --dtype TYPE" },
        { "perplexity", "eval MODEL --data FILE" },        { "finetune", "train --model MODEL" },
        { "pull", "hf download NAME --local-dir DIR" }
    };
    for (size_t i = 0; i < PAL_COUNT(others); i++)
        if (strcmp(argv[0], others[i][0]) == 0)
            return cli_error(CLI_USAGE, "no command '%s'; that is '%s%s'", argv[0],
                             strncmp(others[i][1], "hf", 2) == 0 ? "" : "palimpsa ", others[i][1]);
    const char *near = pal_nearest(argv[0], names);
    if (near) return cli_error(CLI_USAGE, "no command '%s'; did you mean '%s'?", argv[0], near);
    return cli_error(CLI_USAGE, "no command '%s'; see 'palimpsa --help'", argv[0]);
}

static int run(int argc, char **argv) {
    if (argc < 2) {
        print_usage(stderr);
        return CLI_USAGE;
    }
    const bool help = strcmp(argv[1], "help") == 0;
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || (help && argc == 2)) {
        print_usage(stdout);
        return CLI_OK;
    }
    if (help) { /* 'help COMMAND' is 'COMMAND --help' */
        char *swapped[] = { argv[2], "--help", NULL };
        return run_command(2, swapped);
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) argv[1] = "version";
    return run_command(argc - 1, argv + 1);
}

/* A build for one processor (-march=native, say) that is started on an older one would die at an unknown instruction.
 * What the compiler was allowed to use everywhere is asked for before anything else. */
static const char *missing_feature(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
#ifdef __AVX512VNNI__
    if (!__builtin_cpu_supports("avx512vnni")) return "AVX-512 VNNI";
#endif
#ifdef __AVX512VL__ /* with BW and DQ, as every processor but the Xeon Phi has them */
    if (!__builtin_cpu_supports("avx512vl")) return "AVX-512 VL";
#endif
#ifdef __AVX512F__
    if (!__builtin_cpu_supports("avx512f")) return "AVX-512";
#endif
#ifdef __BMI2__
    if (!__builtin_cpu_supports("bmi2")) return "BMI2";
#endif
#ifdef __FMA__
    if (!__builtin_cpu_supports("fma")) return "FMA";
#endif
#ifdef __AVX2__
    if (!__builtin_cpu_supports("avx2")) return "AVX2";
#endif
#ifdef __AVX__
    if (!__builtin_cpu_supports("avx")) return "AVX";
#endif
#ifdef __SSE4_2__
    if (!__builtin_cpu_supports("sse4.2")) return "SSE4.2";
#endif
#elif defined(__aarch64__)
#ifdef __ARM_FEATURE_SVE
    if (!(getauxval(AT_HWCAP) & HWCAP_SVE)) return "SVE";
#endif
#ifdef __ARM_FEATURE_FP16_VECTOR_ARITHMETIC
    if (!(getauxval(AT_HWCAP) & HWCAP_ASIMDHP)) return "arithmetic of half precision (ARMv8.2)";
#endif
#ifdef __ARM_FEATURE_DOTPROD
    if (!(getauxval(AT_HWCAP) & HWCAP_ASIMDDP)) return "dot products of bytes (ARMv8.2)";
#endif
#ifdef __ARM_FEATURE_ATOMICS
    if (!(getauxval(AT_HWCAP) & HWCAP_ATOMICS)) return "atomic instructions (ARMv8.1)";
#endif
#endif
    return NULL;
}

/* Calls that came with 3.17 are used (getrandom); the C library starts on any kernel. */
static int check_kernel(void) {
    struct utsname name;
    int major, minor;
    if (uname(&name) != 0 || sscanf(name.release, "%d.%d", &major, &minor) != 2) return CLI_OK;
    if (major > 3 || (major == 3 && minor >= 17)) return CLI_OK;
    return cli_error(CLI_USAGE, "the kernel here is Linux %s; expected 3.17 or newer", name.release);
}

/* libgomp's waiting threads spin so long that on a busy machine everything is five times slower. It reads the limit
 * before main() begins, so we set it and exec again. If the user sets one of these variables, it is left alone. */
static void wait_calmly(char **argv) {
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") || setenv("GOMP_SPINCOUNT", "3000", 1) != 0) return;
    execv("/proc/self/exe", argv); /* if that fails, continue without */
}

/* A file that is opened where standard output or error was closed would get what is printed. Writing to these fails, as
 * it does to closed ones. */
static void fill_standard_streams(void) {
    int fd;
    do fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO) close(fd);
}

/* A mapped file was truncated, or the disk can no longer be read: the program cannot continue. */
static void on_lost_page(int number, siginfo_t *info, void *unused) {
    static const char sentence[] =
        "palimpsa: a file that is in use became shorter or cannot be read any more (SIGBUS)\n";
    static atomic_flag told = ATOMIC_FLAG_INIT;
    (void)unused;
    if (info->si_code != BUS_ADRERR) { /* something else: as it would be without us, when this returns */
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    while (atomic_flag_test_and_set(&told)) pause(); /* another thread is just saying so */
    const ssize_t written = write(STDERR_FILENO, sentence, sizeof sentence - 1);
    (void)written; /* nothing else can be done */
    _exit(CLI_USAGE);
}

int main(int argc, char **argv) {
    fill_standard_streams();
    const char *missing = missing_feature();
    if (missing)
        return cli_error(CLI_USAGE, "this file was built for processors with %s, which this one lacks", missing);
    int code = check_kernel();
    if (code) return code;
    wait_calmly(argv);
    prctl(PR_SET_NAME, program_invocation_short_name); /* for ps and pgrep; wait_calmly made it "exe" */
    signal(SIGXFSZ, SIG_IGN); /* a file beyond the limit is then an error of write, which says what and where */
    sigaction(SIGBUS, &(struct sigaction){ .sa_sigaction = on_lost_page, .sa_flags = SA_SIGINFO | SA_ONSTACK }, NULL);
    pal_json_watch();
    pal_log_listen(print_warning, NULL);
    code = cli_stop_begin();
    if (!code) code = run(argc, argv);
    const bool lost = fflush(stdout) != 0 || ferror(stdout);
    return ranks_end(lost && code == CLI_OK ? cli_error(CLI_FAILED, "cannot write to standard output") : code);
}
