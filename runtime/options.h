/* options.h -- the trainer's command line, as options.def declares it. */
#ifndef MPC_RUNTIME_OPTIONS_H
#define MPC_RUNTIME_OPTIONS_H

#include "rt.h"

typedef bool RtFLAG;
typedef int64_t RtCOUNT;
typedef double RtREAL;
typedef const char *RtTEXT;
typedef const char *RtCHOICE;
typedef const char *RtMODE; /* NULL: not given; "": given with no value */

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

/* Ends the trainer on a mistake, with RT_EXIT_USAGE; the strings are argv's.  `--help`, `--plan` and
 * `--version` are left to the caller; with one of them the options are not checked against each other. */
RtOptions rt_options_parse(int argc, char **argv, const RtProgram *program);

/* One that must be the same on all ranks: what this one was told. */
typedef struct {
    char name[32];
    char *value; /* the caller's */
} RtSharedOption;

enum { RT_MOST_SHARED = 32 };

int rt_options_shared(const RtOptions *options, RtSharedOption shared[]);

/* Is --help, --plan or --version among them?  Looks for no mistakes. */
bool rt_options_only_ask(int argc, char **argv);

/* What is given for an option that takes a value, or its preset, or NULL.  Looks for no mistakes: for what must be
 * known before the ranks have met, when a mistake would be told by each of them. */
const char *rt_options_text(int argc, char **argv, const char *field);

void rt_options_help(const char *command, const RtProgram *program, bool markdown); /* on stdout */

#endif
