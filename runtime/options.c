/* options.c -- parses, checks and prints the options of options.def. */
#include "options.h"

#include "edits.h"
#include "habits.h"
#include "state.h"
#include "transport.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum { EACH, SAME, CONTENT } Sharing;
typedef enum { FLAG, COUNT, REAL, TEXT, LIST, CHOICE, MODE, TITLE } Kind;

typedef struct {
    const char *field; /* "save_every"; of a TITLE its text */
    Kind kind;
    size_t at, given_at; /* in RtOptions */
    const char *preset;
    double lowest, highest;
    const char *value, *needs;
    Sharing ranks;
    const char *help;
} Option;

static const Option table[] = {
#define GROUP(title) { .field = (title), .kind = TITLE },
#define OPTION(field, kind, ...)                                                                                       \
    { #field, kind, offsetof(RtOptions, field), offsetof(RtOptions, given.field), __VA_ARGS__ },
#include "options.def"
};

enum { NOPTIONS = sizeof table / sizeof *table, MAX_NAME = 32 };

typedef struct {
    char text[MAX_NAME];
} Name;

static Name name_of(const Option *option)
{
    Name name = { { 0 } };
    for (int i = 0; i < MAX_NAME - 1 && option->field[i]; i++)
        name.text[i] = option->field[i] == '_' ? '-' : option->field[i];
    return name;
}

static const Option *find(const char *name)
{
    for (int i = 0; i < NOPTIONS; i++)
        if (table[i].kind != TITLE && !strcmp(name_of(&table[i]).text, name))
            return &table[i];
    return NULL;
}

/* --- Unknown names ------------------------------------------------------------------------- */

static _Noreturn void refuse_unknown(const char *name)
{
    const char *ours = rt_habit(name);
    if (ours && !strncmp(ours, "--set", 5))
        rt_end(RT_EXIT_USAGE, "unknown option --%s: a setting of the model, which is compiled in: mpc compile %s", name,
               ours);
    if (ours)
        rt_end(RT_EXIT_USAGE, "unknown option --%s: did you mean %s? (--help lists the options)", name, ours);
    const Option *nearest = NULL;
    int fewest = (int)(strlen(name) + 4) / 3; /* more than a third of the letters are another word */
    for (int i = 0; i < NOPTIONS; i++) {
        if (table[i].kind == TITLE)
            continue;
        int distance = rt_edits(name, name_of(&table[i]).text);
        if (distance < fewest) {
            fewest = distance;
            nearest = &table[i];
        }
    }
    if (nearest)
        rt_end(RT_EXIT_USAGE, "unknown option --%s: did you mean --%s? (--help lists the options)", name,
               name_of(nearest).text);
    rt_end(RT_EXIT_USAGE, "unknown option --%s (--help lists the options)", name);
}

/* --- Values -------------------------------------------------------------------------------- */

static double number_of(const Option *option, const char *text)
{
    char *end;
    errno = 0;
    double number = strtod(text, &end);
    bool is_whole = option->kind != COUNT || number == floor(number);
    if (end == text || *end || errno || !isfinite(number) || !is_whole)
        rt_end(RT_EXIT_USAGE, "--%s needs a %snumber, not '%s'", name_of(option).text,
               option->kind == COUNT ? "whole " : "", text);
    if (number < option->lowest || number > option->highest)
        rt_end(RT_EXIT_USAGE, "--%s must be between %.15g and %.15g, not %s", name_of(option).text, option->lowest,
               option->highest, text);
    return number;
}

/* Is `text` one of the words of "a|b|c"? */
static bool is_choice(const char *words, const char *text)
{
    size_t length = strcspn(text, "|");
    for (const char *word = words; length > 0 && !text[length]; word++) {
        if (!strncmp(word, text, length) && (word[length] == '|' || word[length] == '\0'))
            return true;
        word = strchr(word, '|');
        if (!word)
            return false;
    }
    return false;
}

/* The list with one text more. */
static RtLIST appended(RtLIST list, const char *text)
{
    int count = 0;
    while (list && list[count])
        count++;
    const char **grown = rt_allocate(count + 2, sizeof *grown);
    for (int i = 0; i < count; i++)
        grown[i] = list[i];
    grown[count] = text;
    free((void *)list);
    return grown;
}

static void set_value(RtOptions *result, const Option *option, const char *text)
{
    void *at = (char *)result + option->at;
    switch (option->kind) {
    case FLAG:
        *(bool *)at = true;
        break;
    case COUNT:
        *(int64_t *)at = (int64_t)number_of(option, text);
        break;
    case REAL:
        *(double *)at = number_of(option, text);
        break;
    case CHOICE:
    case MODE:
        if (*text ? !is_choice(option->value, text) : option->kind == CHOICE)
            rt_end(RT_EXIT_USAGE, "--%s must be one of %s, not '%s'", name_of(option).text, option->value, text);
        *(const char **)at = text;
        break;
    case TEXT:
        *(const char **)at = text;
        break;
    case LIST:
        *(RtLIST *)at = appended(*(RtLIST *)at, text);
        break;
    case TITLE:
        break;
    }
}

static bool takes_value(const Option *option) { return option->kind != FLAG && option->kind != MODE; }

/* Parses argv[i], and argv[i + 1] if that is its value; returns the number of arguments parsed. */
static int parse_one(RtOptions *result, char **argv, int i)
{
    if (strncmp(argv[i], "--", 2) || !argv[i][2])
        rt_end(RT_EXIT_USAGE, "'%s' is not an option: options begin with -- (--help lists them)", argv[i]);
    const char *equals = strchr(argv[i], '=');
    char *name = rt_text("%.*s", (int)(equals ? equals - argv[i] - 2 : (long)strlen(argv[i])), argv[i] + 2);
    const Option *option = find(name);
    if (!option)
        refuse_unknown(name);
    bool *given = (bool *)((char *)result + option->given_at);
    if (*given && option->kind != LIST)
        rt_end(RT_EXIT_USAGE, "--%s is given twice", name);
    if (option->kind == FLAG && equals)
        rt_end(RT_EXIT_USAGE, "--%s takes no value", name);
    bool from_next = takes_value(option) && !equals;
    const char *value = from_next ? argv[i + 1] : equals ? equals + 1 : "";
    if (!value)
        rt_end(RT_EXIT_USAGE, "--%s needs a value: --%s %s", name, name, option->value);
    if (option->value && strstr(option->value, "FILE") && !*value)
        rt_end(RT_EXIT_USAGE, "--%s needs the name of a file, not an empty text", name);
    if (option->value && strstr(option->value, "FILE") && !strcmp(value, "-"))
        rt_end(RT_EXIT_USAGE, "--%s -: a file is needed, not standard input or output: give its name (./- is one)",
               name);
    *given = true;
    set_value(result, option, value);
    free(name);
    return from_next ? 2 : 1;
}

static bool is_question(const Option *option)
{
    return !strcmp(option->field, "help") || !strcmp(option->field, "plan") || !strcmp(option->field, "version");
}

int64_t rt_options_most(const char *field) { return (int64_t)find(field)->highest; }

bool rt_options_only_ask(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2))
            continue;
        char *name = rt_text("%.*s", (int)strcspn(argv[i] + 2, "="), argv[i] + 2);
        const Option *option = find(name);
        free(name);
        if (option && is_question(option))
            return true;
        if (option && takes_value(option) && !strchr(argv[i], '='))
            i++;
    }
    return false;
}

const char *rt_options_text(int argc, char **argv, const char *field)
{
    const char *text = find(field)->preset;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2))
            continue;
        const char *equals = strchr(argv[i], '=');
        char *name = rt_text("%.*s", (int)strcspn(argv[i] + 2, "="), argv[i] + 2);
        const Option *option = find(name);
        free(name);
        if (!option || !takes_value(option))
            continue;
        const char *value = equals ? equals + 1 : argv[++i]; /* argv ends with NULL */
        if (!strcmp(option->field, field))
            text = value;
    }
    return text;
}

double rt_options_timeout(int argc, char **argv)
{
    const char *text = rt_options_text(argc, argv, "timeout");
    const double seconds = text ? strtod(text, NULL) : 0, most = 1e9;
    return seconds > 0 && seconds <= most ? seconds : strtod(find("timeout")->preset, NULL);
}

/* --- Combinations of options ---------------------------------------------------------------- */

static bool has_effect(const RtOptions *result, const Option *option)
{
    const void *at = (const char *)result + option->at;
    return option->kind == FLAG    ? *(const bool *)at
           : option->kind == COUNT ? *(const int64_t *)at > 0
           : option->kind == REAL  ? *(const double *)at > 0
                                   : *(const char *const *)at != NULL;
}

static bool has_any(const RtOptions *result, const char *names)
{
    char *name = rt_text("%.*s", (int)strcspn(names, "|"), names);
    const bool has = has_effect(result, find(name));
    const char *others = strchr(names, '|');
    free(name);
    return has || (others && has_any(result, others + 1));
}

/* "eval-data, --eval-fraction or --sample" */
static char *needs_text(const Option *option)
{
    char *text = rt_text("%s", "");
    for (const char *at = option->needs; *at; at += *at == '|') {
        const int length = (int)strcspn(at, "|");
        const bool is_first = at == option->needs, is_last = !at[length];
        rt_append(&text, "%s%.*s", is_first ? "" : is_last ? " or --" : ", --", length, at);
        at += length;
    }
    return text;
}

static void check_needs(const RtOptions *result)
{
    for (int i = 0; i < NOPTIONS; i++) {
        const Option *option = &table[i];
        if (option->kind == TITLE || !option->needs || !*(const bool *)((const char *)result + option->given_at))
            continue;
        if (!has_any(result, option->needs))
            rt_end(RT_EXIT_USAGE, "--%s has no effect without --%s%s: leave it out, or give both", name_of(option).text,
                   needs_text(option), strcmp(option->needs, "steps") ? "" : " above 0");
    }
}

static void check_ranks_can(const RtOptions *result, const RtProgram *program)
{
    const char *launch = result->given.rank     ? "rank"
                         : result->given.ranks  ? "ranks"
                         : result->given.master ? "master"
                                                : NULL;
    const char *several = result->given.timeout                  ? "timeout"
                          : result->print_mesh                   ? "print-mesh"
                          : result->print_traffic                ? "print-traffic"
                          : result->share_gpu && program->code   ? "share-gpu"
                          : result->nccl_memory && program->code ? "nccl-memory"
                                                                 : launch;
    if (!program->comm && several)
        rt_end(RT_EXIT_USAGE,
               "--%s has no effect on one rank: leave it out, or compile for a mesh (mpc compile --mesh ...)", several);
    if (program->comm && launch && !program->comm->takes_place)
        rt_end(RT_EXIT_USAGE,
               "--%s has no effect where ranks communicate over MPI, whose launcher numbers them: leave it out, or "
               "compile with "
               "--comm=tcp",
               launch);
}

/* Of a model of other tokens than bytes. */
static void check_prompt(const char *prompt, const RtProgram *program)
{
    const long long vocab = (long long)program->vocab;
    if (!prompt || !prompt[strspn(prompt, " ")])
        rt_end(
            RT_EXIT_USAGE,
            "--sample: model '%s' has %lld tokens, not 256 bytes: give --prompt with numbers of tokens, \"464 3290\"",
            program->name, vocab);
    for (const char *at = prompt + strspn(prompt, " "); *at; at += strspn(at, " ")) {
        char *end;
        const long long token = strtoll(at, &end, 10);
        if (end == at || (*end && *end != ' ') || token < 0 || token >= vocab)
            rt_end(RT_EXIT_USAGE, "--prompt: '%.*s' is not the number of a token, from 0 to %lld",
                   (int)strcspn(at, " "), at, vocab - 1);
        at = end;
    }
}

/* Options of a training, and what it prints, have no effect on a measurement of the machine. */
static void check_probe(const RtOptions *result)
{
    static const char *const taken[] = { "probe",     "probe_seconds", "overwrite",    "threads",       "rank",
                                         "ranks",     "master",        "timeout",      "no_fp8",        "no_cudnn",
                                         "no_hopper", "share_gpu",     "kernel_cache", "print_traffic", "nccl_memory" };
    for (int i = 0; i < NOPTIONS; i++) {
        bool is_taken = table[i].kind == TITLE || !*(const bool *)((const char *)result + table[i].given_at);
        for (size_t k = 0; k < sizeof taken / sizeof *taken; k++)
            is_taken = is_taken || strcmp(table[i].field, taken[k]) == 0;
        if (!is_taken)
            rt_end(RT_EXIT_USAGE, "--probe trains nothing: leave --%s out", name_of(&table[i]).text);
    }
}

/* An option of the group "GPU ..."; NULL: there is none. */
static const Option *given_for_gpus(const RtOptions *result)
{
    bool is_for_gpus = false;
    for (int i = 0; i < NOPTIONS; i++)
        if (table[i].kind == TITLE)
            is_for_gpus = strncmp(table[i].field, "GPU", 3) == 0;
        else if (is_for_gpus && *(const bool *)((const char *)result + table[i].given_at))
            return &table[i];
    return NULL;
}

static void check_program_can(const RtOptions *result, const RtProgram *program)
{
    if (result->steps > 0 && !result->data)
        rt_end(RT_EXIT_USAGE, "nothing to train on: give --data FILE, or --steps 0 to train nothing");
    check_ranks_can(result, program);
    const Option *of_gpus = program->code ? NULL : given_for_gpus(result);
    if (of_gpus)
        rt_end(RT_EXIT_USAGE,
               "--%s has no effect on a processor: leave it out, or compile for GPUs (mpc compile --target=cuda)",
               name_of(of_gpus).text);
    if (result->no_fp8 && strcmp(program->precision, "fp8") != 0)
        rt_end(RT_EXIT_USAGE, "--no-fp8 has no effect: the model was compiled with precision = %s", program->precision);
    if (result->offload_folder && (!program->far_bytes || program->code))
        rt_end(RT_EXIT_USAGE, "--offload-folder has no effect: the model was compiled without anything that is "
                              "offloaded to disk; leave it out, or compile with --offload 'optimizer to disk'");
    if (result->data_format && !result->data && !result->eval_data)
        rt_end(RT_EXIT_USAGE, "--data-format has no effect without --data or --eval-data: leave it out, or give both");
    if (result->overwrite && !result->save && !result->outputs && !result->log && !result->trace && !result->probe)
        rt_end(RT_EXIT_USAGE,
               "--overwrite has no effect without --save, --outputs, --log, --trace or --probe: leave it out");
    if (result->keep_best && !result->save)
        rt_end(RT_EXIT_USAGE, "--keep-best has no effect without --save: leave it out, or give both");
    if (result->eval_data && result->given.eval_fraction)
        rt_end(RT_EXIT_USAGE, "--eval-data and --eval-fraction: each says what to evaluate on; leave one out");
    if ((result->eval_data || result->given.eval_fraction) && !program->eval.run)
        rt_end(RT_EXIT_USAGE, "--eval-data and --eval-fraction: model '%s' was compiled without an evaluation",
               program->name);
    if ((result->given.top_k || result->given.top_p) && result->temperature == 0)
        rt_end(RT_EXIT_USAGE, "--%s has no effect with --temperature 0, which selects the most likely: leave one out",
               result->given.top_k ? "top-k" : "top-p");
    if (!result->given.sample)
        return;
    if (!program->predict.run || !program->is_causal_lm)
        rt_end(RT_EXIT_USAGE, "--sample: model '%s' does not predict the next token (labels = next(tokens))",
               program->name);
    if (program->vocab != 256)
        check_prompt(result->prompt, program);
}

RtOptions rt_options_parse(int argc, char **argv, const RtProgram *program)
{
    RtOptions result = { 0 };
    for (int i = 0; i < NOPTIONS; i++)
        if (table[i].preset)
            set_value(&result, &table[i], table[i].preset);
    for (int i = 1; i < argc;)
        i += parse_one(&result, argv, i);
    if (result.help || result.plan || result.version)
        return result;
    if (result.probe) {
        check_probe(&result);
        result.given.steps = true, result.steps = 0;
    }
    if (!result.given.steps && program->schedule.steps <= 0)
        rt_end(RT_EXIT_USAGE, "the schedule of '%s' has no steps: give --steps N (0 trains nothing)", program->name);
    if (!result.given.steps)
        result.steps = program->schedule.steps;
    check_needs(&result);
    check_program_can(&result, program);
    return result;
}

void rt_options_free(RtOptions *options)
{
    for (int i = 0; i < NOPTIONS; i++)
        if (table[i].kind == LIST)
            free((void *)*(RtLIST *)((char *)options + table[i].at));
}

/* --- Ranks ---------------------------------------------------------------------------------- */

static char *value_text(const RtOptions *options, const Option *option)
{
    const void *at = (const char *)options + option->at;
    const bool is_text = option->kind == TEXT || option->kind == CHOICE || option->kind == MODE;
    const char *text = is_text ? *(const char *const *)at : NULL;
    bool is_given = *(const bool *)((const char *)options + option->given_at);
    if (option->ranks == CONTENT || option->kind == FLAG)
        return rt_text("%s", is_given ? "given" : "not given");
    if (option->kind == COUNT && (is_given || *(const int64_t *)at))
        return rt_text("%lld", (long long)*(const int64_t *)at);
    if (option->kind == REAL)
        return rt_text("%.17g", *(const double *)at);
    return text ? rt_text("%s", text) : rt_text("not given");
}

int rt_options_shared(const RtOptions *options, RtSharedOption shared[])
{
    int count = 0;
    for (int i = 0; i < NOPTIONS; i++) {
        const Option *option = &table[i];
        if (option->kind == TITLE || option->ranks == EACH)
            continue;
        memcpy(shared[count].name, name_of(option).text, MAX_NAME);
        shared[count++].value = value_text(options, option);
    }
    return count;
}

/* --- Help ----------------------------------------------------------------------------------- */

/* "--save FILE", "--help[=markdown]" */
static char *form_of(const Option *option)
{
    if (option->kind == MODE)
        return rt_text("--%s[=%s]", name_of(option).text, option->value);
    return rt_text("--%s%s%s", name_of(option).text, option->value ? " " : "", option->value ? option->value : "");
}

static void print_row(const Option *option)
{
    enum { WIDTH = 22 };
    char *form = form_of(option);
    int length = printf("  %s", form);
    if (length > WIDTH)
        printf("\n%*s", WIDTH, "");
    printf("%*s  %s", length < WIDTH ? WIDTH - length : 0, "", option->help);
    if (option->preset)
        printf(" (default: %s)", option->preset);
    putchar('\n');
    free(form);
}

static void print_markdown(void)
{
    printf("| option | meaning | default | needs |\n| --- | --- | --- | --- |\n");
    for (int i = 0; i < NOPTIONS; i++) {
        const Option *option = &table[i];
        if (option->kind == TITLE) {
            printf("| **%s** | | | |\n", option->field);
            continue;
        }
        char *form = form_of(option);
        printf("| `");
        for (const char *c = form; *c; c++)
            printf(*c == '|' ? "\\%c" : "%c", *c); /* a bare | would end the cell */
        char *needs = option->needs ? needs_text(option) : rt_text("%s", "");
        printf("` | %s | %s | %s%s |\n", option->help, option->preset ? option->preset : "", option->needs ? "--" : "",
               needs);
        free(needs);
        free(form);
    }
}

void rt_options_help(const char *command, const RtProgram *program, bool markdown)
{
    if (markdown) {
        print_markdown();
        return;
    }
    printf("Usage: %s [OPTION]...\nTrains the model '%s', compiled from %s by mpc.\n", command, program->name,
           program->source);
    for (int i = 0; i < NOPTIONS; i++) {
        if (table[i].kind == TITLE)
            printf("\n%s\n", table[i].field);
        else
            print_row(&table[i]);
    }
    printf("\nExample\n  %s --data tokens.bin --steps 1000 --save %s.safetensors --save-every 100 --log %s.jsonl\n",
           command, program->name, program->name);
}
