/* SPDX-License-Identifier: MIT */
/* palimpsa convert: surgery. */
#include <string.h>

#include "base/context.h"
#include "cli.h"
#include "surgery.h"

int cmd_convert(int argc, char **argv) {
    cli_surgery surgery = { .seed = 1 };
    cli_surgery_job job = { 0 };
    const cli_option options[] = {
        CLI_SURGERY_OPTIONS(surgery),
        { "tokenizer", OPT_TEXT, &job.tokenizer, "X", "tokenizer file, directory or 'bytes'; it goes along (default: the one that lies with SRC)" },
        { "json", OPT_FLAG, &job.common.json, NULL, "print JSON" },
        CLI_COMMON_OPTIONS(job.common),
    };
    const cli_usage usage = { .synopsis = "convert SRC DST --metaplastic LAYERS [options]",
                              .about = "Surgery: plain layers of SRC become metaplastic in DST.",
                              .examples = "  palimpsa convert mamba2-130m hybrid --metaplastic top:8 --data text.txt --tokenizer gpt-neox/tokenizer.json\n",
                              .options = options, .option_count = PAL_COUNT(options) };
    const char *paths[2];
    int count;
    const int parsed = cli_parse(&usage, argc, argv, paths, 2, &count);
    if (parsed) return parsed < 0 ? CLI_OK : parsed;
    if (count != 2) return cli_error(CLI_USAGE, "convert: expected SRC and DST; see 'palimpsa convert --help'");
    if (!surgery.metaplastic) return cli_error(CLI_USAGE, "convert: expected --metaplastic");
    job.src = paths[0];
    job.dst = paths[1];
    return cli_operate(&surgery, &job);
}
