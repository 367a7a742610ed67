/* new_folder.h -- a folder that is there as a whole or not at all. */
#ifndef MPC_DRIVER_HF_NEW_FOLDER_H
#define MPC_DRIVER_HF_NEW_FOLDER_H

#include "driver.h"

typedef struct {
    const char *path, *aside; /* the files are written into `aside`, beside `path` */
    bool replaces;            /* a folder at `path` */
    TextList written, kept;   /* names: of the new files, and of what else the old folder has */
} NewFolder;

/* Makes the folder in which the files of these names are to be written.  A folder that is there is refused without
 * --overwrite, and if it has weights that would be left beside the new ones.  False after reporting. */
bool begin_folder(Run *run, NewFolder *folder, const char *path, TextList written);

/* Puts it into its place, at once; what the old folder had besides is moved into the new one.  False after reporting:
 * the old folder is as it was. */
bool end_folder(Run *run, NewFolder *folder);

void drop_folder(NewFolder *folder); /* instead of end_folder: removes what has been written */

#endif
