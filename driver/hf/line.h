/* line.h -- one line of a map and one parameter, while they are bound. */
#ifndef MPC_DRIVER_HF_LINE_H
#define MPC_DRIVER_HF_LINE_H

#include "bind.h"

typedef struct {
    Binding *b;
    const MapLine *line;
    int number; /* of the target among the line's */
    const Param *param;
    int first_copy; /* its first one, in b->copy */
    Vars vars;      /* what the names count: copies, then dims */
} LineUse;

bool bind_param(LineUse *use); /* adds its moves; false after reporting */

/* A growing list. */
typedef struct {
    StoredTensor *at;
    int count, room;
} StoredList;

/* Adds the tensors that the line names for the parameter, each as often as its copies do; false after reporting. */
bool list_tensors(LineUse *use, StoredList *list);

/* The numbers of its copies; the variables are those of its path. */
void count_copies(const Module *m, const Param *param, Vars *vars);

/* Without the map's prefix, if the folder lacks it. */
const char *name_in_folder(const Binding *b, const char *name);

#endif
