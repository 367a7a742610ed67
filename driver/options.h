/* options.h -- the command line of mpc, declared in options.def. */
#ifndef MPC_OPTIONS_H
#define MPC_OPTIONS_H

#include "arena.h"

#include <stdbool.h>

#define MPC_VERSION "0.1.0"

enum { STATUS_OK, STATUS_FAILED, STATUS_USAGE }; /* 1: errors in the input; 2: on the command line */

enum {
#define COMMAND(constant, ...) INDEX_##constant,
#include "options.def"
    NCOMMANDS
};

/* Commands are bits, so that an option can name several. */
enum {
#define COMMAND(constant, ...) constant = 1 << INDEX_##constant,
#include "options.def"
    READS_MODEL = COMPILE | RUN | CHECK | REPORT | EXPLAIN | LSP
};

typedef enum { FLAG, SWITCH, TEXT, NUMBER, COUNT, CHOICE, PASSES, LIST } OptionKind;

typedef struct {
    const char *name, *operand, *phrase, *text, *example;
} CommandInfo;

typedef struct {
    const char *field; /* "dump_ir" */
    OptionKind kind;
    char letter;
    int commands;
    const char *value, *excludes, *help;
    size_t at; /* in Options */
} OptionInfo;

extern const CommandInfo command_table[NCOMMANDS];
extern const OptionInfo option_table[];
extern const int noptions;

typedef struct {
    char text[32]; /* "dump-ir" */
} OptionName;

OptionName dashed(const char *field);
OptionName option_name(const OptionInfo *option);
const char *option_value(const OptionInfo *option, int command); /* NULL: it takes none */
const char *option_help(const OptionInfo *option, int command);

/* An option of trainers; value: as in OptionInfo, NULL: it takes none.  Or the title of a group: field is "". */
typedef struct {
    const char *field, *value, *help;
} TrainerOption;

extern const TrainerOption trainer_options[];
extern const int ntrainer_options;
bool is_set_by_run(const char *name); /* does mpc run set this option of trainers for each rank? */

typedef struct {
    int count, room;
    const char **at;
} TextList;

#define TYPE_FLAG bool
#define TYPE_SWITCH const char *
#define TYPE_TEXT const char *
#define TYPE_NUMBER const char *
#define TYPE_COUNT const char *
#define TYPE_CHOICE const char *
#define TYPE_PASSES const char *
#define TYPE_LIST TextList

typedef struct {
    int command;         /* its index */
    const char *operand; /* NULL: none */
    const char *name;    /* the second operand, of commands with two */
    TextList files;      /* what follows the first operand, of commands with "..." in their operands */
    TextList trainer;    /* mpc run: what is the trainer's */
#define OPTION(field, kind, ...) TYPE_##kind field;
#include "options.def"
} Options;

/* Parses the command line.  False after reporting an error and a remedy, or if nothing is left to do (--help,
 * --version); *status is then the exit status. */
bool parse_options(int argc, char **argv, Arena *arena, Options *options, int *status);

/* --set without that key, with room for one more. */
TextList sets_without(Arena *arena, const TextList *set, const char *key);

/* Reports an error in the command line, in one line on stderr that names the command; returns STATUS_USAGE. */
int usage_error(int command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The message transport. */
const char *comm_of(const Options *options);
const char *march_of(const Options *options); /* the processors of the trainer; "": any of this architecture */

int find_command(const char *name); /* its index, or -1 */
/* What is meant by a name that is none: a command with a name like it, or like what other programs call it; for
 * FILE.mdl, "run FILE.mdl"; NULL: nothing that is known. */
const char *command_meant(Arena *arena, const char *name);
bool is_given(const Options *options, const OptionInfo *option);

/* The word of `list` ("a|b|c" with separator '|') at *list; advances *list; false at the end. */
bool next_word(const char **list, char separator, const char **word, int *length);

/* help.c */
void print_help(void);
void print_command_help(int command);
void print_manual(void); /* docs/mpc.1 */

void print_completion(const char *shell); /* completion.c: driver/completion */

#endif
