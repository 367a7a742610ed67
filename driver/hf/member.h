/* member.h -- opens the files of a folder that others have made: plain files in it, and nothing that it points to. */
#ifndef MPC_DRIVER_HF_MEMBER_H
#define MPC_DRIVER_HF_MEMBER_H

#include "driver.h"

struct cJSON;

/* "DIR/name", without a second slash. */
const char *path_in(Arena *arena, const char *folder, const char *name);

/* Is there anything of that name, also a link to nothing? */
bool has_member(Run *run, const char *folder, const char *name);

/* The names of all that is in the folder, sorted; also hidden ones.  False after reporting. */
bool list_members(Run *run, const char *folder, TextList *names);

/* Opens a plain file of the folder for reading.  Links are not followed, except those of Hugging Face's cache, from
 * snapshots/REVISION/NAME to blobs/HASH.  Never waits: pipes and devices are refused.  -1 after reporting. */
int open_member(Run *run, const char *folder, const char *name);

/* The object in a JSON file of the folder; owned by the caller.  NULL after reporting, also keys that occur twice. */
struct cJSON *read_member_json(Run *run, const char *folder, const char *name);

/* Has no object a key twice?  Readers of JSON differ in which of the two they take.  False after reporting. */
bool check_keys(Run *run, const char *path, const struct cJSON *json);

#endif
