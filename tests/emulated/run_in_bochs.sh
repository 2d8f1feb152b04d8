#!/usr/bin/env bash
# Usage: run_in_bochs.sh PROGRAM [ARGS...]
#
# Runs one x86-64 Linux program on an emulated CPU that has AVX-512, on a host
# whose own CPU need not have it. The program and the shared libraries ldd
# names go into an initramfs, a Debian kernel boots with it inside Bochs, and
# the program's stdout, stderr and exit status come back (128+N if signal N
# ended it; stdin is empty). Exit status 125, with one sentence on stderr,
# means that the emulator failed, not the program.
#
# Debian 12 packages: bochs bochs-term bochsbios vgabios isolinux
#                     syslinux-common xorriso cpio gcc libc6-dev
# Root is not needed. The kernel package is fetched once with `apt-get
# download` and only unpacked, never installed; the kernel stays in the cache.
#
# Environment (all optional):
#   EXTRA_FILES="path ..."  files or directories to have at the same path inside
#   GUEST_ENV="A=1 B=2"     environment variables for the program
#   BOCHS_CPU               CPU model (corei7_skylake_x; list: bochs --help cpu)
#   BOCHS_MEM               memory of the emulated machine in MiB (512)
#   BOCHS_TIMEOUT           seconds of host time before giving up (900)
#   BOCHS_KERNEL            a bzImage to boot instead of the fetched one
#   BOCHS_APPEND            more words for the kernel command line
#   BOCHS_CACHE             cache directory (${XDG_CACHE_HOME:-~/.cache}/run_in_bochs)
#   BOCHS_KEEP              directory that receives the logs of the run
set -euo pipefail

fail() { echo "run_in_bochs: $*" >&2; exit 125; }

[ $# -ge 1 ] || fail "usage: run_in_bochs.sh PROGRAM [ARGS...]"
[ -f "$1" ] && [ -x "$1" ] || fail "$1 is not an executable file."
program=$(realpath -- "$1")

cpu=${BOCHS_CPU:-corei7_skylake_x}
mem=${BOCHS_MEM:-512}
limit=${BOCHS_TIMEOUT:-900}
cache=${BOCHS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/run_in_bochs}
ips=50000000 # instructions per emulated second; the kernel is reported below
isolinux=/usr/lib/ISOLINUX/isolinux.bin
ldlinux=/usr/lib/syslinux/modules/bios/ldlinux.c32
bios=/usr/share/bochs/BIOS-bochs-latest
vgabios=/usr/share/bochs/VGABIOS-lgpl-latest

for tool in bochs xorriso cpio gcc ldd timeout; do
    command -v "$tool" >/dev/null || fail "$tool is not installed (packages: see the head of this script)."
done
for file in "$isolinux" "$ldlinux" "$bios" "$vgabios"; do
    [ -r "$file" ] || fail "$file is missing (packages: see the head of this script)."
done

work=$(mktemp -d "${TMPDIR:-/tmp}/run_in_bochs.XXXXXX")
bochs_pid=
# shellcheck disable=SC2329  # called by the trap
finish() {
    if [ -n "$bochs_pid" ]; then # timeout leads its own process group; Bochs outlives SIGTERM
        kill -KILL -- "-$bochs_pid" 2>/dev/null || kill -KILL "$bochs_pid" 2>/dev/null || true
    fi
    if [ -n "${BOCHS_KEEP:-}" ]; then
        mkdir -p "$BOCHS_KEEP"
        for file in "$work"/*.log "$work"/{stdout,stderr,status,bochsrc}; do
            if [ -f "$file" ]; then cp "$file" "$BOCHS_KEEP"/; fi
        done
    fi
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# ---- kernel ---------------------------------------------------------------
kernel=${BOCHS_KERNEL:-$cache/vmlinuz}
if [ ! -r "$kernel" ]; then
    [ -z "${BOCHS_KERNEL:-}" ] || fail "BOCHS_KERNEL=$kernel cannot be read."
    mkdir -p "$cache" "$work/deb"
    package=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null |
              sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | tail -n 1)
    [ -n "$package" ] || fail "apt knows no package linux-image-cloud-amd64 (apt-get update?)."
    (cd "$work/deb" && apt-get download "$package" && dpkg-deb -x ./*.deb .) >"$work/apt.log" 2>&1 ||
        fail "the kernel package $package could not be fetched: $(tail -n 1 "$work/apt.log")"
    cp "$work"/deb/boot/vmlinuz-* "$kernel.$$"
    mv "$kernel.$$" "$kernel"
    rm -rf "$work/deb"
fi

# ---- init: runs the program, sends its output out of emulated ports --------
# parallel port 1: stdout; parallel port 2: stderr; serial port 2: exit status;
# serial port 1: kernel log. The parallel ports pass every byte, unchanged, in
# no emulated time. Port 0x8900 ends Bochs.
root=$work/root
mkdir -p "$root/.run_in_bochs" "$work/iso"
cat >"$work/init.c" <<'INIT'
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

static void end(const char *text)
{
    int fd = open("/dev/ttyS1", O_WRONLY | O_NOCTTY);
    struct termios t;
    if (fd < 0) {
        perror("/dev/ttyS1");
    } else {
        if (tcgetattr(fd, &t) == 0) {
            cfmakeraw(&t);
            cfsetspeed(&t, B115200);
            tcsetattr(fd, TCSANOW, &t);
        }
        if (write(fd, text, strlen(text)) < 0) perror("/dev/ttyS1");
        tcdrain(fd);
    }
    for (const char *s = "Shutdown"; *s; s++) outb((unsigned char)*s, 0x8900);
    for (;;) pause();
}

static void print_byte(unsigned char c, unsigned short port)
{
    outb(c, port);
    outb(0x0d, port + 2); /* strobe on */
    outb(0x0c, port + 2); /* strobe off */
}

static char *slurp(const char *path, size_t *len)
{
    struct stat st;
    int fd = open(path, O_RDONLY);
    ssize_t n;
    if (fd < 0 || fstat(fd, &st)) end("failed: init could not read its files\n");
    char *buf = calloc(1, (size_t)st.st_size + 1);
    if (!buf) end("failed: init has no memory\n");
    for (*len = 0; (n = read(fd, buf + *len, (size_t)st.st_size - *len)) > 0; ) *len += (size_t)n;
    close(fd);
    return buf;
}

/* NUL-separated strings of a file to a NULL-terminated vector */
static char **vector(const char *path)
{
    size_t len, n = 0;
    char *buf = slurp(path, &len);
    char **v = calloc(len + 1, sizeof *v);
    if (!v) end("failed: init has no memory\n");
    for (char *p = buf; p < buf + len; p += strlen(p) + 1) v[n++] = p;
    return v;
}

int main(void)
{
    static const unsigned short port[2] = { 0x378, 0x278 };
    static unsigned char buf[65536];
    int out[2], err[2], wstatus, open_ends = 2;
    size_t len;
    char text[32];

    if (iopl(3)) { perror("iopl"); return 1; }
    mkdir("/proc", 0755); mkdir("/sys", 0755); mkdir("/dev", 0755);
    mkdir("/tmp", 0755); chmod("/tmp", 01777);
    mount("proc", "/proc", "proc", 0, "");
    mount("sysfs", "/sys", "sysfs", 0, "");
    mount("devtmpfs", "/dev", "devtmpfs", 0, "");
    mkdir("/dev/shm", 01777);
    mount("tmpfs", "/dev/shm", "tmpfs", 0, "");

    char **path = vector("/.run_in_bochs/path");
    char **argv = vector("/.run_in_bochs/argv");
    char **envp = vector("/.run_in_bochs/env");
    char *cwd = slurp("/.run_in_bochs/cwd", &len);

    if (pipe(out) || pipe(err)) end("failed: pipe in init\n");
    pid_t pid = fork();
    if (pid < 0) end("failed: fork in init\n");
    if (pid == 0) {
        int null = open("/dev/null", O_RDONLY);
        iopl(0);
        setsid();
        dup2(null, 0); dup2(out[1], 1); dup2(err[1], 2);
        close(null); close(out[0]); close(out[1]); close(err[0]); close(err[1]);
        if (chdir(cwd)) perror(cwd);
        execve(path[0], argv, envp);
        int e = errno;
        fprintf(stderr, "run_in_bochs: %s: %s\n", path[0], strerror(e));
        _exit(e == ENOENT ? 127 : 126);
    }
    close(out[1]); close(err[1]);

    struct pollfd p[2] = { { out[0], POLLIN, 0 }, { err[0], POLLIN, 0 } };
    while (open_ends) {
        if (poll(p, 2, -1) < 0) continue;
        for (int i = 0; i < 2; i++) {
            if (p[i].fd < 0 || !p[i].revents) continue;
            ssize_t n = read(p[i].fd, buf, sizeof buf);
            if (n <= 0) { p[i].fd = -1; open_ends--; continue; }
            for (ssize_t k = 0; k < n; k++) print_byte(buf[k], port[i]);
        }
    }
    while (waitpid(pid, &wstatus, 0) < 0 && errno == EINTR) ;
    snprintf(text, sizeof text, "exit %d\n", WIFSIGNALED(wstatus) ? 128 + WTERMSIG(wstatus) : WEXITSTATUS(wstatus));
    end(text);
}
INIT
gcc -O2 -Wall -static -o "$root/init" "$work/init.c" 2>"$work/gcc.log" ||
    fail "the init program did not compile: $(head -n 1 "$work/gcc.log")"

# ---- the program, its libraries, the extra files ---------------------------
place() { # copies $1, symbolic links followed, to the same path inside
    local path directory
    path=$(realpath -s -- "$1")
    directory=$(dirname -- "$path")
    mkdir -p "$root$directory"
    cp -RL -- "$path" "$root$directory/"
}
libraries() { # dynamic linker and shared libraries of $1, one path a line
    (ldd "$1" 2>/dev/null || true) |
        sed -n -e 's/^[[:space:]]*\(.*\) => not found.*/!\1/p' \
               -e 's/.*=> \(\/.*\) (0x[0-9a-f]*)$/\1/p' \
               -e 's/^[[:space:]]*\(\/.*\) (0x[0-9a-f]*)$/\1/p'
}
files=("$program")
for file in ${EXTRA_FILES:-}; do
    [ -e "$file" ] || fail "extra file $file does not exist."
    files+=("$file")
done
for file in "${files[@]}"; do
    place "$file"
    if [ -d "$file" ]; then continue; fi
    while IFS= read -r library; do
        case $library in
            '!'*) fail "$file needs the library ${library#!}, which is not found." ;;
        esac
        if [ ! -e "$root$library" ]; then place "$library"; fi
    done < <(libraries "$file")
done
if [ -r /etc/ld.so.cache ]; then place /etc/ld.so.cache; fi
mkdir -p "$root$PWD"
printf '%s\0' "$program" >"$root/.run_in_bochs/path"
printf '%s\0' "$@" >"$root/.run_in_bochs/argv"
# shellcheck disable=SC2086  # GUEST_ENV is a list of words
printf '%s\0' PATH=/usr/bin:/bin HOME=/tmp ${LD_LIBRARY_PATH:+"LD_LIBRARY_PATH=$LD_LIBRARY_PATH"} \
    ${GUEST_ENV:-} >"$root/.run_in_bochs/env"
printf '%s' "$PWD" >"$root/.run_in_bochs/cwd"

# ---- boot medium -----------------------------------------------------------
(cd "$root" && find . -print0 | cpio --quiet -0 -o -H newc -R 0:0) >"$work/iso/initrd" 2>"$work/cpio.log" ||
    fail "the initramfs could not be packed: $(head -n 1 "$work/cpio.log")"
cp "$kernel" "$work/iso/kernel"
cp "$isolinux" "$ldlinux" "$work/iso/"
# noxsaves, nopku, clearcpuid: Bochs 2.7 states a wrong size for the compacted
#   XSAVE area and for PKRU, at which Linux would switch off all of AVX; with FSRM the Ice Lake model hangs at boot.
# tsc_early_khz, lpj: the CPU model states a clock that Bochs does not keep to.
# cryptomgr.notests, initcall_blacklist: slow self-tests, not needed here.
# panic, reboot: a kernel panic ends in a triple fault, and that ends Bochs.
append="initrd=initrd console=ttyS0,115200 loglevel=5 nokaslr nosmp mitigations=off"
append+=" noxsaves nopku clearcpuid=xsavec,pku,ospke,fsrm tsc=reliable tsc_early_khz=$((ips / 1000)) lpj=$((ips / 2500))"
append+=" cryptomgr.notests initcall_blacklist=load_system_certificate_list,init_kprobe_trace"
append+=" random.trust_cpu=on 8250.nr_uarts=2 panic=-1 reboot=triple,force ${BOCHS_APPEND:-}"
printf '%s\n' 'default run' 'prompt 0' 'timeout 0' 'label run' '  kernel kernel' "  append $append" \
    >"$work/iso/isolinux.cfg"
xorriso -as mkisofs -quiet -o "$work/cd.iso" -b isolinux.bin -c boot.cat -no-emul-boot -boot-load-size 4 \
    -boot-info-table "$work/iso" >"$work/xorriso.log" 2>&1 ||
    fail "the boot image could not be made: $(tail -n 1 "$work/xorriso.log")"

# ---- the emulated machine --------------------------------------------------
cat >"$work/bochsrc" <<RC
config_interface: textconfig
display_library: term
cpu: model=$cpu, count=1, ips=$ips, reset_on_triple_fault=0
clock: sync=none, time0=utc
megs: $mem
romimage: file=$bios, options=fastboot
vgaromimage: file=$vgabios
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=cdrom, path=cd.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=kernel.log
com2: enabled=1, mode=file, dev=status
parport1: enabled=1, file=stdout
parport2: enabled=1, file=stderr
speaker: enabled=0
sound: driver=dummy
plugin_ctrl: gameport=0
log: bochs.log
panic: action=fatal
error: action=ignore
info: action=ignore
debug: action=ignore
RC
echo continue >"$work/debugger" # Debian's Bochs has its debugger built in
: >"$work/stdout"
: >"$work/stderr"
: >"$work/status"
began=$SECONDS
# shellcheck disable=SC2094
(cd "$work" && TERM=vt100 exec timeout -s KILL "$limit" bochs -q -f bochsrc -rc debugger) \
    </dev/null >"$work/screen.log" 2>&1 &
bochs_pid=$!
# Output appears as it comes; each tail ends after Bochs has, with the last of it.
tail -s 0.2 -c +1 -f --pid="$bochs_pid" "$work/stdout" &
tail_out=$!
tail -s 0.2 -c +1 -f --pid="$bochs_pid" "$work/stderr" >&2 &
tail_err=$!
{ wait "$bochs_pid" && rc=0 || rc=$?; } 2>/dev/null
bochs_pid=
wait "$tail_out" "$tail_err" || true

if [[ $(cat "$work/status") =~ ^exit\ ([0-9]+)$ ]]; then exit "${BASH_REMATCH[1]}"; fi
if grep -q '^failed' "$work/status"; then fail "$(cat "$work/status")"; fi
if [ "$rc" -eq 124 ] || [ "$rc" -eq 137 ]; then
    fail "stopped after $((SECONDS - began)) s without an exit status (BOCHS_TIMEOUT=$limit)."
fi
cause=$({ grep -ah 'Kernel panic' "$work/kernel.log" || grep -ah 'PANIC' "$work/bochs.log" ||
          sed -n '/exiting with the following message/{n;p}' "$work/screen.log"; } 2>/dev/null |
        tr -d '\r' | head -n 1) || true
fail "Bochs ended with status $rc before the program did: ${cause:-cause unknown, see the logs in BOCHS_KEEP}"
