/* Preloaded by tests: the calls named in REFUSED_CALLS fail with REFUSED_ERRNO on files under REFUSED_UNDER.
   "write" fails beyond REFUSED_BYTES of a file, as on a full disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static int is_named(const char *call) {
    const char *names = getenv("REFUSED_CALLS"), *at;
    size_t length = strlen(call);
    for (at = names; at && (at = strstr(at, call)); at += length)
        if ((at == names || at[-1] == ',') && (at[length] == ',' || !at[length])) return 1;
    return 0;
}

static int is_under(const char *path) {
    const char *folder = getenv("REFUSED_UNDER");
    char whole[2 * PATH_MAX], here[PATH_MAX];
    if (!folder || !path) return 0;
    if (path[0] != '/' && getcwd(here, sizeof here)) {
        snprintf(whole, sizeof whole, "%s/%s", here, path);
        path = whole;
    }
    return !strncmp(path, folder, strlen(folder));
}

static int is_open_under(int fd) {
    char name[64], path[PATH_MAX];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_under(path);
}

static int refuses(const char *call, int concerns) {
    if (!concerns || !is_named(call)) return 0;
    errno = atoi(getenv("REFUSED_ERRNO"));
    return 1;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define OF_FILE(name, arguments, given) \
    int name arguments { return refuses(#name, is_open_under(fd)) ? -1 : NEXT(name) given; }
#define OF_PATH(name, arguments, given) \
    int name arguments { return refuses(#name, is_under(path)) ? -1 : NEXT(name) given; }

int flock(int, int);
OF_FILE(flock, (int fd, int operation), (fd, operation))
OF_FILE(fsync, (int fd), (fd))
OF_FILE(fdatasync, (int fd), (fd))
OF_FILE(fchmod, (int fd, mode_t mode), (fd, mode))
OF_FILE(ftruncate, (int fd, off_t size), (fd, size))
OF_PATH(chmod, (const char *path, mode_t mode), (path, mode))
OF_PATH(link, (const char *from, const char *path), (from, path))
OF_PATH(symlink, (const char *from, const char *path), (from, path))
OF_PATH(rename, (const char *from, const char *path), (from, path))
int ftruncate64(int fd, off64_t size) { return refuses("ftruncate", is_open_under(fd)) ? -1 : NEXT(ftruncate64)(fd, size); }
int fchmodat(int at, const char *path, mode_t mode, int flags) {
    return refuses("chmod", is_under(path)) ? -1 : NEXT(fchmodat)(at, path, mode, flags);
}

static int is_lock(int command) { return command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK; }
int fcntl(int fd, int command, ...) {
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    return refuses("fcntl", is_lock(command) && is_open_under(fd)) ? -1 : NEXT(fcntl)(fd, command, argument);
}
int fcntl64(int fd, int command, ...) {
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    return refuses("fcntl", is_lock(command) && is_open_under(fd)) ? -1 : NEXT(fcntl)(fd, command, argument);
}

static int is_beyond(int fd, off64_t end) {
    const char *most = getenv("REFUSED_BYTES");
    return most && is_named("write") && end > atoll(most) && is_open_under(fd);
}
ssize_t write(int fd, const void *bytes, size_t count) {
    off64_t end = is_named("write") ? lseek64(fd, 0, SEEK_CUR) + (off64_t)count : 0;
    return refuses("write", is_beyond(fd, end)) ? -1 : NEXT(write)(fd, bytes, count);
}
ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    return refuses("write", is_beyond(fd, at + (off64_t)count)) ? -1 : NEXT(pwrite)(fd, bytes, count, at);
}
ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    return refuses("write", is_beyond(fd, at + (off64_t)count)) ? -1 : NEXT(pwrite64)(fd, bytes, count, at);
}
