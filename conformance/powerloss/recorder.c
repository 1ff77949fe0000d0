// Records what a process does to the files of one directory, and lets chosen calls fail. To be preloaded (LD_PRELOAD).
//
// A call is made and recorded under one lock, so the order of the recording is the order of the changes. A sync is
// recorded when it begins and when it has succeeded: it covers what was recorded before it began. Other processes may
// append records of their own (what a client was told), each with one write.
//
//   RECORD_DIR       the directory, absolute; it has no directories below it
//   RECORD_LOG       where records are appended
//   RECORD_FAIL      write:N or sync:N: the Nth call fails with EIO, a write after half of its bytes
//   RECORD_FULL      while this file exists, nothing grows: ENOSPC
//   RECORD_HOLD      while this file exists, no sync ends
//   RECORD_CLOCK     by how many seconds the clock of the day is ahead
//
// Sees functions of the C library only, and not all of them; `power_loss.rs` compares the replay with the directory,
// and so finds what escaped.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

// As in recording.rs.
enum kind { CREATE = 1, WRITE, LENGTH, RENAME, REMOVE, SYNC_BEGIN, SYNC_END, NAMES_BEGIN, NAMES_END, ESCAPE };

struct header {
    uint32_t kind, name_bytes, data_bytes, zero;
    uint64_t file, number;
};

enum { FDS = 65536, PIECES = 1100 };

// By descriptor. `is_watched`: 1 a file, 2 the directory.
static struct { uint64_t file; int is_watched; } fds[FDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char dir[PATH_MAX], full[PATH_MAX], hold[PATH_MAX];
static size_t dir_bytes;
static int log_fd = -1;
static long ahead_secs, fail_write_at, fail_sync_at, writes, syncs;
static uint64_t last_sync;

#define REAL(result, name, ...) static result (*real_##name)(__VA_ARGS__)
REAL(int, open64, const char *, int, ...);
REAL(int, close, int);
REAL(ssize_t, pwritev64, int, const struct iovec *, int, off64_t);
REAL(ssize_t, write, int, const void *, size_t);
REAL(int, ftruncate64, int, off64_t);
REAL(int, fallocate64, int, int, off64_t, off64_t);
REAL(int, rename, const char *, const char *);
REAL(int, unlink, const char *);
REAL(int, mkdir, const char *, mode_t);
REAL(int, fsync, int);
REAL(int, fdatasync, int);
REAL(int, clock_gettime, clockid_t, struct timespec *);

__attribute__((constructor)) static void start(void)
{
    if (real_open64)
        return;
#define LOAD(name) real_##name = dlsym(RTLD_NEXT, #name)
    LOAD(close), LOAD(pwritev64), LOAD(write), LOAD(ftruncate64), LOAD(fallocate64), LOAD(rename), LOAD(unlink);
    LOAD(mkdir), LOAD(fsync), LOAD(fdatasync), LOAD(clock_gettime), LOAD(open64);
    const char *value = getenv("RECORD_DIR");
    if (!value || strlen(value) >= sizeof dir)
        return;
    strcpy(dir, value);
    dir_bytes = strlen(dir);
    if ((value = getenv("RECORD_FULL")))
        snprintf(full, sizeof full, "%s", value);
    if ((value = getenv("RECORD_HOLD")))
        snprintf(hold, sizeof hold, "%s", value);
    if ((value = getenv("RECORD_CLOCK")))
        ahead_secs = atol(value);
    if ((value = getenv("RECORD_FAIL"))) {
        sscanf(value, "write:%ld", &fail_write_at);
        sscanf(value, "sync:%ld", &fail_sync_at);
    }
    if ((value = getenv("RECORD_LOG")))
        log_fd = real_open64(value, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
}

// Who kills the process takes the lock of the log first: else it could die with a change made and not recorded.
static void enter(void)
{
    pthread_mutex_lock(&lock);
    while (log_fd >= 0 && flock(log_fd, LOCK_EX) && errno == EINTR)
        ;
}

static void leave(void)
{
    if (log_fd >= 0)
        flock(log_fd, LOCK_UN);
    pthread_mutex_unlock(&lock);
}

static void record(enum kind kind, uint64_t file, uint64_t number, const char *name, const struct iovec *data,
                   int pieces, size_t data_bytes)
{
    if (log_fd < 0)
        return;
    static struct iovec parts[PIECES];
    struct header header = { kind, name ? strlen(name) : 0, data_bytes, 0, file, number };
    int count = 0;
    size_t left = data_bytes, total = sizeof header + header.name_bytes + data_bytes;
    parts[count++] = (struct iovec){ &header, sizeof header };
    parts[count++] = (struct iovec){ (void *)name, header.name_bytes };
    for (int i = 0; i < pieces && left; i++) {
        size_t bytes = data[i].iov_len < left ? data[i].iov_len : left;
        // One write makes one record: more pieces than it takes are put together.
        if (count == 1024)
            abort();
        parts[count++] = (struct iovec){ data[i].iov_base, bytes };
        left -= bytes;
    }
    if (syscall(SYS_writev, log_fd, parts, count) != (ssize_t)total)
        abort();
}

static void record_name(enum kind kind, uint64_t file, uint64_t number, const char *name)
{
    record(kind, file, number, name, NULL, 0, 0);
}

// The name of a file in the directory, "" for the directory; NULL: it is elsewhere.
static const char *name_of(const char *path)
{
    if (!dir_bytes || strncmp(path, dir, dir_bytes))
        return NULL;
    if (!path[dir_bytes])
        return "";
    return path[dir_bytes] == '/' ? path + dir_bytes + 1 : NULL;
}

static int watched(int fd) { return fd >= 0 && fd < FDS ? fds[fd].is_watched : 0; }

static int is_there(const char *path) { return path[0] && !syscall(SYS_faccessat, AT_FDCWD, path, F_OK); }

static int is_full(void) { return is_there(full); }

static off64_t length(int fd)
{
    struct stat64 status;
    return fstat64(fd, &status) ? 0 : status.st_size;
}

static int fail(int error)
{
    errno = error;
    return -1;
}

static int open_any(const char *path, int flags, mode_t mode)
{
    start();
    const char *name = name_of(path);
    if (!name)
        return real_open64(path, flags, mode);
    enter();
    struct stat64 status;
    int is_new = fstatat64(AT_FDCWD, path, &status, 0) != 0;
    int fd = is_new && (flags & O_CREAT) && is_full() ? fail(ENOSPC) : real_open64(path, flags, mode);
    int error = errno;
    if (fd >= 0 && fd < FDS && !fstat64(fd, &status)) {
        fds[fd].file = status.st_ino;
        fds[fd].is_watched = S_ISDIR(status.st_mode) ? 2 : 1;
        if (is_new)
            record_name(CREATE, status.st_ino, 0, name);
        else if (flags & O_TRUNC)
            record_name(LENGTH, status.st_ino, 0, NULL);
    }
    leave();
    errno = error;
    return fd;
}

#define MODE                                            \
    mode_t mode = 0;                                    \
    if (flags & (O_CREAT | __O_TMPFILE)) {              \
        va_list more;                                   \
        va_start(more, flags);                          \
        mode = va_arg(more, mode_t);                    \
        va_end(more);                                   \
    }
int open(const char *path, int flags, ...) { MODE return open_any(path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE return open_any(path, flags, mode); }

int close(int fd)
{
    start();
    if (watched(fd)) {
        enter();
        fds[fd].is_watched = 0;
        leave();
    }
    return real_close(fd);
}

ssize_t pwritev64(int fd, const struct iovec *pieces, int count, off64_t offset)
{
    start();
    if (watched(fd) != 1)
        return real_pwritev64(fd, pieces, count, offset);
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += pieces[i].iov_len;
    enter();
    ssize_t written = -1;
    if (++writes == fail_write_at) {
        // Half of the first piece reaches the file.
        struct iovec half = { pieces[0].iov_base, pieces[0].iov_len / 2 };
        ssize_t part = half.iov_len ? real_pwritev64(fd, &half, 1, offset) : 0;
        if (part > 0)
            record(WRITE, fds[fd].file, offset, NULL, &half, 1, part);
        errno = EIO;
    } else if (is_full() && offset + (off64_t)bytes > length(fd)) {
        errno = ENOSPC;
    } else {
        written = real_pwritev64(fd, pieces, count < 1000 ? count : 1000, offset);
        if (written > 0)
            record(WRITE, fds[fd].file, offset, NULL, pieces, count, written);
    }
    int error = errno;
    leave();
    errno = error;
    return written;
}

ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t offset)
{
    return pwritev64(fd, pieces, count, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset)
{
    struct iovec piece = { (void *)bytes, count };
    return pwritev64(fd, &piece, 1, offset);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) { return pwrite64(fd, bytes, count, offset); }

// A plain write goes to where the descriptor stands; no other thread has the same one.
ssize_t write(int fd, const void *bytes, size_t count)
{
    start();
    if (watched(fd) != 1)
        return real_write(fd, bytes, count);
    off64_t offset = fcntl(fd, F_GETFL) & O_APPEND ? length(fd) : lseek64(fd, 0, SEEK_CUR);
    ssize_t written = pwrite64(fd, bytes, count, offset);
    if (written > 0)
        lseek64(fd, offset + written, SEEK_SET);
    return written;
}

int ftruncate64(int fd, off64_t bytes)
{
    start();
    if (watched(fd) != 1)
        return real_ftruncate64(fd, bytes);
    enter();
    int result = is_full() && bytes > length(fd) ? fail(ENOSPC) : real_ftruncate64(fd, bytes), error = errno;
    if (!result)
        record_name(LENGTH, fds[fd].file, bytes, NULL);
    leave();
    errno = error;
    return result;
}

int ftruncate(int fd, off_t bytes) { return ftruncate64(fd, bytes); }

int fallocate64(int fd, int mode, off64_t offset, off64_t bytes)
{
    start();
    if (watched(fd) != 1)
        return real_fallocate64(fd, mode, offset, bytes);
    enter();
    off64_t before = length(fd);
    int grows = offset + bytes > before;
    int result = is_full() && grows ? fail(ENOSPC) : real_fallocate64(fd, mode, offset, bytes), error = errno;
    // Blocks behind the end of the file come or go: nothing that a reader sees.
    int is_unseen = mode == FALLOC_FL_KEEP_SIZE || (mode & FALLOC_FL_KEEP_SIZE && offset >= before);
    if (!result && mode && !is_unseen)
        record_name(ESCAPE, 0, 0, "fallocate with a mode");
    else if (!result && !mode && grows)
        record_name(LENGTH, fds[fd].file, offset + bytes, NULL);
    leave();
    errno = error;
    return result;
}

int fallocate(int fd, int mode, off_t offset, off_t bytes) { return fallocate64(fd, mode, offset, bytes); }

int rename(const char *from, const char *to)
{
    start();
    const char *old = name_of(from), *new = name_of(to);
    if (!old && !new)
        return real_rename(from, to);
    enter();
    int result = real_rename(from, to), error = errno;
    if (!result && old && new) {
        struct iovec name = { (void *)new, strlen(new) };
        record(RENAME, 0, 0, old, &name, 1, name.iov_len);
    } else if (!result)
        record_name(ESCAPE, 0, 0, "rename into or out of the directory");
    leave();
    errno = error;
    return result;
}

int unlink(const char *path)
{
    start();
    const char *name = name_of(path);
    if (!name)
        return real_unlink(path);
    enter();
    int result = real_unlink(path), error = errno;
    if (!result)
        record_name(REMOVE, 0, 0, name);
    leave();
    errno = error;
    return result;
}

int mkdir(const char *path, mode_t mode)
{
    start();
    const char *name = name_of(path);
    if (name && *name)
        record_name(ESCAPE, 0, 0, "mkdir");
    return real_mkdir(path, mode);
}

static int sync_any(int fd, int (*real)(int))
{
    int is_watched = watched(fd);
    if (!is_watched)
        return real(fd);
    enter();
    uint64_t file = fds[fd].file, number = ++last_sync;
    int fails = ++syncs == fail_sync_at;
    record_name(is_watched == 1 ? SYNC_BEGIN : NAMES_BEGIN, file, number, NULL);
    leave();
    while (is_there(hold))
        usleep(1000);
    if (fails)
        return fail(EIO);
    int result = real(fd), error = errno;
    if (!result) {
        enter();
        record_name(is_watched == 1 ? SYNC_END : NAMES_END, file, number, NULL);
        leave();
    }
    errno = error;
    return result;
}

int fsync(int fd)
{
    start();
    return sync_any(fd, real_fsync);
}

int fdatasync(int fd)
{
    start();
    return sync_any(fd, real_fdatasync);
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    start();
    int result = real_clock_gettime(clock, time);
    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        time->tv_sec += ahead_secs;
    return result;
}
