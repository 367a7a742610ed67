/* object_cache.h -- a cache of compiled units of trainers, so that what did not change is not compiled again.
 *
 * Objects are files in $MPC_CACHE or $XDG_CACHE_HOME/mpc/objects, named by a SHA-256 of all that they depend on: the
 * unit's text, the runtime's headers, the compiler, its flags, and the processor for -march=native. */
#ifndef MPC_OBJECT_CACHE_H
#define MPC_OBJECT_CACHE_H

#include "cc.h"

typedef struct {
    const char *folder;  /* NULL: no cache is used */
    const char *why;     /* then, why not */
    const char *context; /* the digest of what all units depend on */
} ObjectCache;

/* Never fails: no cache is used without a folder that belongs to the user alone, nor with flags or compilers that may
 * depend on other files. */
ObjectCache open_object_cache(Run *run, const Runtime *runtime);

/* The path of the object of a unit with this text, whether it is cached or not; NULL: no cache is used. */
const char *cached_path(Run *run, const ObjectCache *cache, const char *text);

/* Is there an object at that path?  Then it is marked as used now. */
bool is_cached(const char *path);

/* Copies the compiled `object` to that path, and evicts the least recently used ones if the cache is too large.  A
 * failure only costs compiling it again later. */
void store_object(Run *run, const ObjectCache *cache, const char *path, const char *object);

#endif
