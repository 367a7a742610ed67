/* help.c -- help texts: for the terminal and as a manual page. */
#include "options.h"

#include "manager/pass.h"

#include <stddef.h>
#include <stdio.h>

enum { WIDTH = 100, COLUMN = 28 };

typedef struct {
    size_t at;
    int commands;
    const char *value, *help;
} OptionHelp;

static const OptionHelp help_table[] = {
#define HELP(field, commands, value, help) { offsetof(Options, field), commands, value, help },
#include "options.def"
};

/* Where a command differs from the others; NULL: it does not. */
static const OptionHelp *own_help(const OptionInfo *option, int command)
{
    for (size_t i = 0; i < sizeof help_table / sizeof *help_table; i++)
        if (help_table[i].at == option->at && help_table[i].commands >> command & 1)
            return &help_table[i];
    return NULL;
}

const char *option_value(const OptionInfo *option, int command)
{
    const OptionHelp *own = own_help(option, command);
    return own && own->value ? own->value : option->value;
}

const char *option_help(const OptionInfo *option, int command)
{
    const OptionHelp *own = own_help(option, command);
    return own ? own->help : option->help;
}

/* Prints `text` in lines of WIDTH columns, with continuation lines indented; `at` is the present column. */
static void print_filled(const char *text, int indent, int at)
{
    const char *word;
    int length;
    for (bool first = true; next_word(&text, ' ', &word, &length); first = false) {
        if (!first && at + 1 + length > WIDTH)
            at = printf("\n%*s", indent, "") - 1;
        else if (!first)
            at += printf(" ");
        at += printf("%.*s", length, word);
    }
    putchar('\n');
}

void print_help(void)
{
    printf(
        "Usage: mpc COMMAND [OPTION]... [FILE]\nCompiles a model (.mdl) into a program that trains it.\n\nCommands\n");
    for (int i = 0; i < NCOMMANDS; i++)
        printf("  mpc %-8s %-18s  %s\n", command_table[i].name, command_table[i].operand, command_table[i].phrase);
    printf("  mpc --version                    print the version\n"
           "\n'mpc help COMMAND' lists a command's options. Exit status: 0; 1 for errors in a file; 2 for mistakes on "
           "the\n"
           "command line.\n\nExample\n  %s\n",
           command_table[INDEX_COMPILE].example);
}

static void print_form(const char *form, const char *help)
{
    int at = printf("%s", form);
    if (at >= COLUMN - 1)
        at = printf("\n") - 1;
    printf("%*s", COLUMN - at, "");
    print_filled(help, COLUMN, COLUMN);
}

static void print_option(const OptionInfo *option, int command)
{
    char form[80];
    const char *value = option_value(option, command);
    bool may_lack = option->kind == SWITCH;
    snprintf(form, sizeof form, "  %c%c%s--%s%s%s%s%s", option->letter ? '-' : ' ',
             option->letter ? option->letter : ' ', option->letter ? ", " : "  ", option_name(option).text,
             may_lack ? "[" : "", value ? "=" : "", value ? value : "", may_lack ? "]" : "");
    print_form(form, option_help(option, command));
}

static void print_trainer_options(void)
{
    printf("\nOptions that go to the trainer\n");
    for (int i = 0; i < ntrainer_options; i++) {
        const TrainerOption *option = &trainer_options[i];
        char form[80];
        if (is_set_by_run(option->field))
            continue;
        if (!*option->field) {
            printf("\n%s\n", option->help);
            continue;
        }
        snprintf(form, sizeof form, "      --%s%s%s", dashed(option->field).text, option->value ? "=" : "",
                 option->value ? option->value : "");
        print_form(form, option->help);
    }
}

static void print_passes(void)
{
    printf("\nPasses, in order\n");
    for (int i = 0; i < npasses; i++)
        printf("  %-12s %s\n", passes[i].name, passes[i].help);
}

void print_command_help(int command)
{
    const CommandInfo *info = &command_table[command];
    bool names_passes = false, has_options = false;
    printf("Usage: mpc %s [OPTION]...%s%s\n", info->name, *info->operand ? " " : "", info->operand);
    print_filled(info->text, 0, 0);
    for (int i = 0; i < noptions; i++) {
        const OptionInfo *option = &option_table[i];
        if (!(option->commands >> command & 1))
            continue;
        if (!has_options)
            printf("\nOptions\n");
        has_options = true;
        names_passes |= option->kind == PASSES;
        print_option(option, command);
    }
    if (names_passes)
        print_passes();
    if (command == INDEX_RUN)
        print_trainer_options();
    printf("\nExample\n  %s\n", info->example);
}

/* --- The manual page ------------------------------------------------------------------------ */

/* In roff a literal '-' is "\-", and a line must not begin with a dot. */
static void print_roff(const char *text)
{
    for (; *text; text++)
        printf(*text == '-' ? "\\-" : *text == '\\' ? "\\e" : "%c", *text);
}

static void print_manual_command(int command)
{
    const CommandInfo *info = &command_table[command];
    printf(".SS \"mpc %s [OPTION]...%s%s\"\n", info->name, *info->operand ? " " : "", info->operand);
    print_roff(info->text);
    putchar('\n');
    for (int i = 0; i < noptions; i++) {
        const OptionInfo *option = &option_table[i];
        if (!(option->commands >> command & 1))
            continue;
        printf(".TP\n.B ");
        if (option->letter)
            printf("\\-%c, ", option->letter);
        printf("\\-\\-");
        print_roff(option_name(option).text);
        if (option->value)
            printf(option->kind == SWITCH ? "[=\\fI%s\\fR]" : "=\\fI%s\\fR", option_value(option, command));
        putchar('\n');
        print_roff(option_help(option, command));
        putchar('\n');
    }
    printf(".PP\nExample:\n.B ");
    print_roff(info->example);
    putchar('\n');
}

void print_manual(void)
{
    printf(".\\\" Made by 'mpc help --as=man' from driver/options.def and passes/passes.def.\n"
           ".TH MPC 1 \"\" \"mpc %s\" \"User Commands\"\n.SH NAME\nmpc \\- compile a model into its trainer\n"
           ".SH SYNOPSIS\n.B mpc\n.I COMMAND\n[\\fIOPTION\\fR]... [\\fIFILE\\fR]\n.SH COMMANDS\n",
           MPC_VERSION);
    for (int i = 0; i < NCOMMANDS; i++)
        print_manual_command(i);
    printf(".SH PASSES\n");
    for (int i = 0; i < npasses; i++)
        printf(".TP\n.B %s\n%s\n", passes[i].name, passes[i].help);
    printf(".SH ENVIRONMENT\n.TP\n.B CC\nthe C compiler, unless \\-\\-cc names one\n.TP\n.B MPC_RUNTIME\n"
           "the folder with libmpcrt.a and include/rt.h, where mpc is neither installed nor in its build tree\n"
           ".TP\n.B MPC_CACHE\nthe folder of the object cache, or 'no' (default: "
           "$XDG_CACHE_HOME/mpc/objects, or $HOME/.cache/mpc/objects)\n"
           ".SH EXIT STATUS\n0; 1 for errors in a file; 2 for mistakes on the command line.\n");
}
