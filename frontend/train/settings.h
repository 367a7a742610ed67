/* settings.h -- shared by settings.c, origin.c, choices.c and optimizers.c: the rows of settings, and their values. */
#ifndef MPC_SETTINGS_H
#define MPC_SETTINGS_H

#include "syntax/idioms.h"
#include "train.h"

/* A number that can be set: a key of train, or an argument of a choice. */
typedef struct {
    const char *setting, *of, *key; /* train.SETTING = OF(KEY = ...); of: NULL for the setting itself */
    bool whole, flag;               /* flag: true or false */
    bool below;                     /* less than `most`, exclusive */
    size_t offset;                  /* in Train */
    double otherwise, least, most;  /* otherwise: the default; NAN: there is none */
    const char *unit;
} Row;

typedef struct {
    const Row *at;
    int count;
} Rows;

double read_setting(Lower *l, const Row *row, const Ast *ast); /* NAN after reporting */

/* Messages between these two refer to the location of the value. */
void enter_origin(Lower *l, const ValueOrigin *said, OtherText *elsewhere);
void leave_origin(Lower *l, const ValueOrigin *said, OtherText *elsewhere);
const char *from_text(Lower *l, const ValueOrigin *said);
const char *set_text(Lower *l, const Override *set);
ValueOrigin origin_on_command_line(Lower *l, const Override *set);

/* A setting whose value is one of several names with arguments: cosine(warmup = 700). */
typedef struct {
    const char *setting;
    IdiomKind idioms;
    const ValueOrigin *said;
    const char *const *names; /* n valid ones */
    int n;
    const char *name; /* the chosen one */
    Rows rows;        /* its arguments */
    bool has_no_sets; /* --set is not about it */
} Choice;

/* The chosen name; NULL after reporting. */
const char *read_choice_name(Lower *l, Choice *choice, const char *otherwise);
bool check_choice(Lower *l, const Choice *choice); /* the names of its arguments; false after reporting */
const Ast *find_argument(const Ast *call, const char *key);
/* One argument, and the text of where it was given; NAN after reporting. */
double read_argument(Lower *l, const Choice *choice, const Row *row, bool call_is_good, const char **from);

#endif
