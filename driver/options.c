/* options.c -- parses the command line with the table in options.def. */
#include "options.h"

#include "manager/pass.h"
#include "near.h"
#include "runtime/habits.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const CommandInfo command_table[NCOMMANDS] = {
#define COMMAND(constant, ...) [INDEX_##constant] = { __VA_ARGS__ },
#include "options.def"
};

const OptionInfo option_table[] = {
#define OPTION(field, kind, letter, commands, value, excludes, help)                                                   \
    { #field, kind, letter, commands, value, excludes, help, offsetof(Options, field) },
#include "options.def"
};
const int noptions = sizeof option_table / sizeof *option_table;

int usage_error(int command, const char *format, ...)
{
    Arena arena = { 0 };
    va_list args;
    va_start(args, format);
    fprintf(stderr, "mpc%s%s: error: %s\n", command < 0 ? "" : " ", command < 0 ? "" : command_table[command].name,
            visible_text(&arena, arena_vtext(&arena, format, args)));
    va_end(args);
    arena_free(&arena);
    return STATUS_USAGE;
}

int find_command(const char *name)
{
    for (int i = 0; i < NCOMMANDS; i++)
        if (strcmp(command_table[i].name, name) == 0)
            return i;
    return -1;
}

const TrainerOption trainer_options[] = {
#define GROUP(title) { "", NULL, title },
#define OPTION(field, kind, preset, lowest, highest, value, needs, ranks, help) { #field, value, help },
#include "runtime/options.def"
};
const int ntrainer_options = sizeof trainer_options / sizeof *trainer_options;

OptionName dashed(const char *field)
{
    OptionName name = { { 0 } };
    for (size_t i = 0; i + 1 < sizeof name.text && field[i]; i++)
        name.text[i] = field[i] == '_' ? '-' : field[i];
    return name;
}

OptionName option_name(const OptionInfo *option) { return dashed(option->field); }

bool is_given(const Options *options, const OptionInfo *option)
{
    const void *at = (const char *)options + option->at;
    switch (option->kind) {
    case FLAG:
        return *(const bool *)at;
    case LIST:
        return ((const TextList *)at)->count > 0;
    case SWITCH:
    case TEXT:
    case NUMBER:
    case COUNT:
    case CHOICE:
    case PASSES:
        break;
    }
    return *(const char *const *)at != NULL;
}

bool next_word(const char **list, char separator, const char **word, int *length)
{
    if (!**list)
        return false;
    const char ends[] = { separator, '\0' };
    *word = *list;
    *length = (int)strcspn(*list, ends);
    *list += *length + ((*list)[*length] != '\0');
    return true;
}

TextList sets_without(Arena *arena, const TextList *set, const char *key)
{
    TextList list = { .room = set->count + 1, .at = NEW_ARRAY(arena, const char *, set->count + 1) };
    const size_t length = strlen(key);
    for (int i = 0; i < set->count; i++)
        if (strncmp(set->at[i], key, length) != 0 || set->at[i][length] != '=')
            list.at[list.count++] = set->at[i];
    return list;
}

/* --- Values -------------------------------------------------------------------------------- */

/* The present argument. */
typedef struct {
    int argc, at;
    char **argv;
    Arena *arena;
    Options *options;
} Line;

static bool refuse(const Line *line, const char *message)
{
    usage_error(line->options->command, "%s", message);
    return false;
}

static bool is_word(const char *list, char separator, const char *text)
{
    const char *word;
    int length;
    while (next_word(&list, separator, &word, &length))
        if ((int)strlen(text) == length && memcmp(word, text, (size_t)length) == 0)
            return true;
    return false;
}

/* Words besides passes that an option accepts: "lower", "all". */
static const char *other_pass(const OptionInfo *option)
{
    return option->at == offsetof(Options, compile_to) ? "lower"
           : option->at == offsetof(Options, remarks)  ? "all"
                                                       : "";
}

static bool check_pass(const Line *line, const OptionInfo *option, const char *name)
{
    if (find_pass(name) >= 0 || (*name && strcmp(name, other_pass(option)) == 0))
        return true;
    NearMiss near = { .name = name };
    const char *all = "";
    for (int i = 0; i < npasses; i++) {
        offer(&near, passes[i].name);
        all = arena_text(line->arena, "%s%s%s", all, i ? ", " : "", passes[i].name);
    }
    const char *meant = near.best ? arena_text(line->arena, "did you mean %s?", near.best)
                                  : arena_text(line->arena, "the passes are %s", all);
    return refuse(line,
                  arena_text(line->arena, "--%s: there is no pass '%s': %s", option_name(option).text, name, meant));
}

static bool check_passes(const Line *line, const OptionInfo *option, const char *text)
{
    const char *word, *list = text;
    int length;
    if (!*text)
        return check_pass(line, option, "");
    while (next_word(&list, ',', &word, &length))
        if (!check_pass(line, option, arena_text(line->arena, "%.*s", length, word)))
            return false;
    if (strchr(text, ',') && option->value[4] != ',') /* only "PASS,..." accepts several */
        return refuse(line, arena_text(line->arena, "--%s takes one pass, not %s", option_name(option).text, text));
    return true;
}

/* As in a .mdl, without its '_': digits, a point, an exponent. */
static bool is_positive_number(const char *text)
{
    char *end;
    const double number = strtod(text, &end);
    return text[strspn(text, "0123456789.eE+-")] == '\0' && !*end && number > 0 && isfinite(number);
}

static bool check_value(const Line *line, const OptionInfo *option, const char *text)
{
    enum { MOST_DIGITS = 9 };
    if (option->kind == PASSES)
        return check_passes(line, option, text);
    if (option->kind == SWITCH)
        return !*text || strcmp(text, option->value) == 0 ||
               refuse(line, arena_text(line->arena, "--%s takes no value but %s, not '%s'", option_name(option).text,
                                       option->value, text));
    if (option->kind == CHOICE && !is_word(option->value, '|', text))
        return refuse(line, arena_text(line->arena, "--%s must be one of %s, not '%s'", option_name(option).text,
                                       option->value, text));
    if (option->kind == LIST && (!strchr(text, '=') || *text == '=' || !strchr(text, '=')[1]))
        return refuse(
            line, arena_text(line->arena, "--%s needs %s, not '%s'", option_name(option).text, option->value, text));
    if (option->kind == NUMBER && !is_positive_number(text))
        return refuse(line, arena_text(line->arena, "--%s needs a number above 0, as 1e9, not '%s'",
                                       option_name(option).text, text));
    if (option->kind == COUNT && (!*text || text[strspn(text, "0123456789")] || strlen(text) > MOST_DIGITS))
        return refuse(line, arena_text(line->arena, "--%s needs a whole number of at most %d digits, not '%s'",
                                       option_name(option).text, MOST_DIGITS, text));
    if (!*text && option->at != offsetof(Options, cflags))
        return refuse(line, arena_text(line->arena, "--%s needs a value: %s", option_name(option).text,
                                       option_value(option, line->options->command)));
    return true;
}

static void append_text(Arena *arena, TextList *list, const char *text)
{
    GROW(arena, list->at, list->count, list->room);
    list->at[list->count++] = text;
}

/* Is NAME=VALUE for a name that already has a value? */
static bool is_said_before(const TextList *list, const char *text)
{
    size_t length = strcspn(text, "=") + 1;
    for (int i = 0; i < list->count; i++)
        if (strncmp(list->at[i], text, length) == 0)
            return true;
    return false;
}

/* `text`: the value, or NULL for a flag. */
static bool set_option(const Line *line, const OptionInfo *option, const char *text)
{
    void *at = (char *)line->options + option->at;
    if (option->kind != LIST && is_given(line->options, option))
        return refuse(line, arena_text(line->arena, "--%s is given twice", option_name(option).text));
    if (text && !check_value(line, option, text))
        return false;
    if (option->kind == LIST && is_said_before(at, text))
        return refuse(line, arena_text(line->arena, "--%s %.*s is given twice", option_name(option).text,
                                       (int)strcspn(text, "="), text));
    if (option->kind == FLAG)
        *(bool *)at = true;
    else if (option->kind == LIST)
        append_text(line->arena, at, text);
    else if (option->at == offsetof(Options, output) && text[0] == '-' && text[1])
        *(const char **)at = arena_text(line->arena, "./%s", text); /* the C compiler would take it for an option */
    else
        *(const char **)at = text;
    return true;
}

/* --- Names --------------------------------------------------------------------------------- */

static bool takes(int command, const OptionInfo *option) { return option->commands >> command & 1; }

/* `name`: the text before '=' or the value; one letter after a single '-'. */
static const OptionInfo *find_option(int command, const char *name, bool is_letter)
{
    for (int i = 0; i < noptions; i++) {
        const OptionInfo *option = &option_table[i];
        bool is_named = is_letter ? option->letter == *name : strcmp(option_name(option).text, name) == 0;
        if (is_named && takes(command, option))
            return option;
    }
    return NULL;
}

/* What an unknown option, --batch or --learning-rate, is called here: --set train.batch=..., of mpc run also an option
 * of the trainer; or NULL. */
static const char *habit_meant(Arena *arena, int command, const char *name)
{
    static const char *const keys[] = {
#define KEY(id, key, ...) key,
#include "frontend/settings.def"
    };
    char *plain = arena_text(arena, "%s", name);
    for (char *at = plain; *at; at++)
        *at = *at == '-' ? '_' : *at;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(plain, keys[i]) == 0)
            return arena_text(arena, "--set train.%s=...", plain);
    const char *ours = rt_habit(name);
    return ours && (command == INDEX_RUN || strncmp(ours, "--set", 5) == 0) ? ours : NULL;
}

/* What others call the number of ranks, or an axis of the mesh, as this command has it; or NULL. */
static const char *mesh_meant(Arena *arena, int command, const char *name)
{
    static const char ranks[] =
        "ranks|mesh|gpus|ngpus|devices|np|nproc|nproc-per-node|nproc_per_node|nnodes|nodes|world-size";
    const char *axis = find_option(command, "keep", false) ? "keep" : "mesh";
    if (!find_option(command, axis, false))
        return NULL;
    if (is_word("dp|tp|pp|cp|ep", '|', name))
        return arena_text(arena, "--%s %s=...", axis, name);
    if (!is_word(ranks, '|', name))
        return NULL;
    return *axis == 'k' ? "--ranks N" : "--mesh dp=N";
}

static bool refuse_unknown(const Line *line, const char *dashes, const char *name)
{
    NearMiss near = { .name = name };
    OptionName *names = NEW_ARRAY(line->arena, OptionName, noptions + ntrainer_options);
    const char *command = command_table[line->options->command].name, *others = "";
    for (int i = 0; i < ntrainer_options && line->options->command == INDEX_RUN; i++) {
        names[noptions + i] = dashed(trainer_options[i].field);
        if (*names[noptions + i].text)
            offer(&near, names[noptions + i].text);
    }
    for (int i = 0; i < noptions; i++) {
        names[i] = option_name(&option_table[i]);
        if (takes(line->options->command, &option_table[i]))
            offer(&near, names[i].text);
        for (int c = 0; c < NCOMMANDS && strcmp(names[i].text, name) == 0; c++)
            if (takes(c, &option_table[i]))
                others = arena_text(line->arena, "%s%s'mpc %s'", others, *others ? ", " : " is an option of ",
                                    command_table[c].name);
    }
    const char *meant = mesh_meant(line->arena, line->options->command, name);
    if (*others)
        return refuse(line, arena_text(line->arena, "--%s%s, not of 'mpc %s'%s%s%s", name, others, command,
                                       meant ? ": did you mean " : "", meant ? meant : "", meant ? "?" : ""));
    meant = meant ? meant : habit_meant(line->arena, line->options->command, name);
    if (!meant && near.best)
        meant = arena_text(line->arena, "--%s", near.best);
    return refuse(line,
                  arena_text(line->arena, "unknown option %s%s%s%s%s ('mpc help %s' lists the options)", dashes, name,
                             meant ? ": did you mean " : "", meant ? meant : "", meant ? "?" : "", command));
}

bool is_set_by_run(const char *name) { return is_word("rank|ranks|master", '|', name); }

/* An option of trainers, whose value they check: argv[at - 1], and argv[at] if that is its value. */
static bool pass_on(Line *line, const char *name, bool has_value)
{
    const TrainerOption *option = NULL;
    for (int i = 0; i < ntrainer_options; i++)
        if (*name && strcmp(dashed(trainer_options[i].field).text, name) == 0)
            option = &trainer_options[i];
    if (!option)
        return refuse_unknown(line, "--", name);
    if (is_set_by_run(name))
        return refuse(line, arena_text(line->arena, "--%s is set by mpc run for each rank: leave it out", name));
    append_text(line->arena, &line->options->trainer, line->argv[line->at - 1]);
    if (option->value && !has_value && line->at < line->argc)
        append_text(line->arena, &line->options->trainer, line->argv[line->at++]);
    return true;
}

static bool print_answer(int command, const char *name, int *status)
{
    bool asks_help = strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
    if (!asks_help && strcmp(name, "--version") != 0)
        return false;
    *status = STATUS_OK;
    if (!asks_help)
        printf("mpc %s\n", MPC_VERSION);
    else if (command < 0)
        print_help();
    else
        print_command_help(command);
    return true;
}

/* Parses argv[at], and argv[at + 1] if that is its value. */
static bool read_option(Line *line)
{
    const char *text = line->argv[line->at++];
    bool is_letter = text[1] != '-';
    const char *equals = is_letter ? NULL : strchr(text, '=');
    const char *name =
        is_letter ? arena_text(line->arena, "%c", text[1])
                  : arena_text(line->arena, "%.*s", equals ? (int)(equals - text - 2) : (int)strlen(text), text + 2);
    const OptionInfo *option = find_option(line->options->command, name, is_letter);
    if (!option && !is_letter && line->options->command == INDEX_RUN)
        return pass_on(line, name, equals != NULL);
    if (!option)
        return refuse_unknown(line, is_letter ? "-" : "--", name);
    const char *form = option_value(option, line->options->command);
    const char *value = is_letter && text[2] ? text + 2 + (text[2] == '=') : equals ? equals + 1 : NULL;
    if (option->kind == FLAG && value)
        return refuse(line, arena_text(line->arena, "--%s takes no value", option_name(option).text));
    if (option->kind == SWITCH && !value)
        value = "";
    if (option->kind != FLAG && !value) {
        if (line->at == line->argc)
            return refuse(line, arena_text(line->arena, "--%s needs a value: %s", option_name(option).text, form));
        value = line->argv[line->at++];
        if (value[0] == '-' && value[1] && option->at != offsetof(Options, cflags))
            return refuse(line,
                          arena_text(line->arena,
                                     "--%s needs a value: %s; '%s' looks like an option (if it is not, write --%s=%s)",
                                     option_name(option).text, form, value, option_name(option).text, value));
    }
    return set_option(line, option, value);
}

/* --- The whole line ------------------------------------------------------------------------ */

static bool check_excluded(const Line *line)
{
    for (int i = 0; i < noptions; i++)
        for (int j = 0; j < noptions; j++) {
            const OptionInfo *option = &option_table[i], *beside = &option_table[j];
            if (option->excludes && is_word(option->excludes, ',', option_name(beside).text) &&
                is_given(line->options, option) && is_given(line->options, beside))
                return refuse(line, arena_text(line->arena, "--%s and --%s: these exclude each other; leave one out",
                                               option_name(option).text, option_name(beside).text));
        }
    return true;
}

const char *command_meant(Arena *arena, const char *name)
{
    static const struct {
        const char *theirs, *ours;
    } synonyms[] = { { "train", "run" },  { "start", "run" },      { "build", "compile" },  { "lint", "check" },
                     { "format", "fmt" }, { "profile", "report" }, { "convert", "import" }, { "search", "plan" } };
    enum { SYNONYMS = sizeof synonyms / sizeof *synonyms };
    NearMiss near = { .name = name };
    const size_t length = strlen(name);
    if (length > 4 && strcmp(name + length - 4, ".mdl") == 0)
        return arena_text(arena, "run %s", name);
    for (int i = 0; i < NCOMMANDS; i++)
        offer(&near, command_table[i].name);
    for (int i = 0; i < SYNONYMS; i++)
        offer(&near, synonyms[i].theirs);
    for (int i = 0; i < SYNONYMS; i++)
        if (near.best == synonyms[i].theirs)
            return synonyms[i].ours;
    return near.best;
}

static bool read_command(int argc, char **argv, Arena *arena, Options *options, int *status)
{
    *status = STATUS_USAGE;
    if (argc < 2) {
        print_help();
        return false;
    }
    if (print_answer(-1, argv[1], status))
        return false;
    options->command = find_command(argv[1]);
    if (options->command >= 0)
        return true;
    const char *meant = command_meant(arena, argv[1]);
    usage_error(-1, "there is no command '%s'%s%s%s ('mpc help' lists them)", argv[1], meant ? ": did you mean " : "",
                meant ? meant : "", meant ? "?" : "");
    return false;
}

bool parse_options(int argc, char **argv, Arena *arena, Options *options, int *status)
{
    *options = (Options){ 0 };
    if (!read_command(argc, argv, arena, options, status))
        return false;
    Line line = { .argc = argc, .at = 2, .argv = argv, .arena = arena, .options = options };
    bool only_operands = false;
    while (line.at < argc) {
        const char *text = argv[line.at];
        if (!only_operands && strcmp(text, "--") == 0) {
            only_operands = true;
            line.at++;
        } else if (!only_operands && text[0] == '-' && text[1]) {
            if (print_answer(options->command, text, status) || !read_option(&line))
                return false;
        } else if (options->operand && strstr(command_table[options->command].operand, "...")) {
            append_text(arena, &options->files, text);
            line.at++;
        } else if (options->operand && !options->name && strchr(command_table[options->command].operand, ' ')) {
            options->name = text;
            line.at++;
        } else if (options->operand) {
            return refuse(&line, arena_text(arena, "only one %s is allowed: leave '%s' out",
                                            command_table[options->command].operand, text));
        } else {
            options->operand = text;
            line.at++;
        }
    }
    return check_excluded(&line);
}
