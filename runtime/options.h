/* options.h -- the trainer's command line, declared in options.def. */
#ifndef MPC_RUNTIME_OPTIONS_H
#define MPC_RUNTIME_OPTIONS_H

#include "rt.h"

typedef bool RtFLAG;
typedef int64_t RtCOUNT;
typedef double RtREAL;
typedef const char *RtTEXT;
typedef const char *RtCHOICE;
typedef const char *const *RtLIST; /* ended by NULL; NULL: not given */
typedef const char *RtMODE;        /* NULL: not given; "": given with no value */

typedef struct {
#define GROUP(title)
#define OPTION(field, kind, ...) Rt##kind field;
#include "options.def"
    struct {
#define GROUP(title)
#define OPTION(field, kind, ...) bool field;
#include "options.def"
    } given; /* on the command line */
} RtOptions;

/* On an error, ends the trainer with RT_EXIT_USAGE; strings point into argv.  The caller handles `--help`, `--plan` and
 * `--version`; with one of them, combinations of options are not checked. */
RtOptions rt_options_parse(int argc, char **argv, const RtProgram *program);

/* The lists of options that may be repeated. */
void rt_options_free(RtOptions *options);

/* The value on this rank of an option that must be equal on all ranks. */
typedef struct {
    char name[32];
    char *value; /* owned by the caller */
} RtSharedOption;

enum {
    RT_MOST_SHARED = 0 /* not more than there are options */
#define GROUP(title)
#define OPTION(...) +1
#include "options.def"
};

int rt_options_shared(const RtOptions *options, RtSharedOption shared[]);

/* The highest value of an option that takes a number. */
int64_t rt_options_most(const char *field);

/* Is --help, --plan or --version among them?  Reports no errors. */
bool rt_options_only_ask(int argc, char **argv);

/* The value of an option, or its preset, or NULL.  Reports no errors: used before the rendezvous, when each rank would
 * report the same error. */
const char *rt_options_text(int argc, char **argv, const char *field);

/* The seconds of --timeout, or its preset if they are none.  Reports no errors: used before options are checked. */
double rt_options_timeout(int argc, char **argv);

void rt_options_help(const char *command, const RtProgram *program, bool markdown); /* on stdout */

#endif
