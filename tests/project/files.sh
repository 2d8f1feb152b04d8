#!/usr/bin/env bash
# Files and directories are changed by src/base/io.h alone, where tests make the disk fail and record what a power failure
# may undo. Calls elsewhere that look like a change, and why each is none:
set -euo pipefail
root=$1
allowed=(
    'cli/cmd_bench.c:    FILE *to = fopen(path, "we");'             # only for names below /dev: no file
    'cli/bench_memories.c:    FILE *csv = o->csv ? fopen(o->csv, "we") : NULL;' # measurements, which can be made again
    'cli/cmd_generate.c:freopen("/dev/null", "w", stdout)'          # the reader of our output is gone
    'cli/cmd_serve.c:write(STDERR_FILENO, '                         # a line of the log, to its reader
    'cli/main.c:write(STDERR_FILENO, '                              # the sentence of a signal handler
    'cli/ranks.c:freopen("/dev/null", "w", stdout)'                 # only the first rank speaks
    'cli/options.c:memfd_create("options", '                        # a recipe, or options from another rank: RAM, not a file
    'cli/options.c:write(file, text'                                  # the same
    'cli/sweep_farm.c:open("/dev/null", O_WRONLY | O_CLOEXEC)'      # the output of a trial
)
calls='(f?truncate(64)?|rename(at2?)?|unlink(at)?|remove|mk(dir|nod|fifo)(at)?|mkd?o?s?temps?|tmpfile|tmpnam|rmdir|(sym)?link(at)?'
calls+='|f(data)?sync|sync|sync_file_range|syncfs|creat|freopen|fdopen|memfd_create|shm_open|(posix_)?fallocate|p?write(v2?)?|p?write64'
calls+='|copy_file_range|sendfile|splice|f?ch(mod|own)(at)?|lchown|utimes?|utimensat|futimens|f?setxattr|system|popen|cairo_surface_write_to_png'
calls+='|cairo_(svg|pdf|ps)_surface_create)\('
before='(^|[^a-zA-Z0-9_>.])'
look() { grep -rnE "$before$1" src cli --include='*.c' --include='*.h' --include='*.inc' | grep -v '^src/base/' || true; }
cd "$root"
found=$(look "$calls"; look 'open(at)?(64)?\(' | grep -v O_RDONLY || true; look 'fopen(64)?\(' | grep -vE '"r[be]*"' || true)
bad=0
for one in "${allowed[@]}"; do
    left=$(awk -v file="${one%%:*}:" -v text="${one#*:}" 'index($0, file) != 1 || !index($0, text)' <<<"$found")
    if [ "$left" = "$found" ]; then
        echo "no longer there, and no longer to be allowed: $one"
        bad=1
    fi
    found=$left
done
if [ -n "$found" ]; then
    echo "calls that change files outside src/base/io.h:"
    echo "$found"
    bad=1
fi
[ "$bad" -eq 0 ] || exit 1
echo "files are changed by base/io.h alone"
