/* objects.h -- keeps compiled units of trainers, so that what did not change is not compiled again.
 *
 * Objects are files of a folder, $MPC_CACHE or $XDG_CACHE_HOME/mpc/objects, named by a digest of all that they depend
 * on: the unit's text, the runtime's headers, the compiler, its flags, and the processor for -march=native. */
#ifndef MPC_OBJECTS_H
#define MPC_OBJECTS_H

#include "cc.h"

typedef struct {
    const char *folder;  /* NULL: nothing is kept */
    const char *why;     /* then, why not */
    const char *context; /* the digest of what all units depend on */
} Objects;

/* Never fails: without a folder that is the user's alone nothing is kept, nor with flags or compilers that depend on
 * other files. */
Objects find_objects(Run *run, const Runtime *runtime);

/* The path of the object of a unit with this text, whether it is kept or not; NULL: nothing is kept. */
const char *object_path(Run *run, const Objects *objects, const char *text);

/* Is the object kept?  Then it counts as used now. */
bool is_kept(const char *path);

/* Keeps the compiled `object` under that path, and removes those not used for longest if there are too many.  It is
 * only compiled again later where this is not possible. */
void keep_object(Run *run, const Objects *objects, const char *path, const char *object);

#endif
