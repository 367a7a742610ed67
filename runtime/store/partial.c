#include "partial.h"

#include <errno.h>
#include <fcntl.h>

#include <sys/stat.h>
#include <unistd.h>

int rt_partial_open(const char *path, bool truncate)
{
    struct stat info;
    if (truncate && !lstat(path, &info) && S_ISREG(info.st_mode) && info.st_nlink > 1)
        unlink(path);
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (file >= 0 && (fstat(file, &info) || !S_ISREG(info.st_mode) || (truncate && ftruncate(file, 0)))) {
        close(file);
        errno = EEXIST;
        return -1;
    }
    return file;
}
