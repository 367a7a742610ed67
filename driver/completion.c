/* completion.c -- completion of commands, options, their words and files, for bash, zsh and fish. */
#include "options.h"

#include "manager/pass.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* An option of a command. */
typedef struct {
    OptionName name;   /* "dump-ir" */
    OptionKind kind;   /* of a trainer's: FLAG or TEXT */
    const char *value; /* "DIR"; of a CHOICE its words; NULL: none */
    const char *help;
    char letter; /* 0: none */
} Word;

/* Option i of all that there are: mpc's, and of mpc run the trainer's.  False: the command does not have it. */
static bool word_at(int command, int i, Word *word)
{
    if (i < noptions) {
        const OptionInfo *option = &option_table[i];
        *word = (Word){ option_name(option), option->kind, option_value(option, command), option_help(option, command),
                        option->letter };
        return option->commands >> command & 1;
    }
    const TrainerOption *option = &trainer_options[i - noptions];
    const bool has_words = option->value && strchr(option->value, '|');
    *word = (Word){ .name = dashed(option->field),
                    .kind = !option->value ? FLAG
                            : has_words    ? CHOICE
                                           : TEXT,
                    .value = option->value,
                    .help = option->help };
    return command == INDEX_RUN && *option->field && !is_set_by_run(option->field) &&
           strcmp(option->field, "help") != 0;
}

static int count_words(void) { return noptions + ntrainer_options; }

static bool takes_value(const Word *word) { return word->kind != FLAG && word->kind != SWITCH; }

static bool names_file(const char *value)
{
    return value && (strstr(value, "FILE") || strstr(value, "DIR") || strcmp(value, "OUT") == 0);
}

/* The ending of files that a command reads: "mdl"; "": it names none. */
static OptionName ending_of(int command)
{
    const char *file = strstr(command_table[command].operand, "FILE.");
    OptionName ending = { { 0 } };
    if (file)
        snprintf(ending.text, sizeof ending.text, "%.*s", (int)strcspn(file + 5, " ."), file + 5);
    return ending;
}

static bool takes_folder(int command) { return strcmp(command_table[command].operand, "DIR") == 0; }

/* A word in the place of an operand: "merge" of mpc trace; "": none. */
static OptionName word_of_operand(int command)
{
    const char *operand = command_table[command].operand;
    OptionName word = { { 0 } };
    if (islower((unsigned char)operand[0]))
        snprintf(word.text, sizeof word.text, "%.*s", (int)strcspn(operand, " "), operand);
    return word;
}

/* Within single quotes of zsh and fish. */
static void print_quoted(char c) { printf(c == '\'' ? "'\\''" : "%c", c); }

static void print_phrase(int command)
{
    for (const char *at = command_table[command].phrase; *at; at++)
        print_quoted(*at);
}

/* The beginning of a help text that says enough beside a name; characters of `special` get a backslash. */
static void print_brief(const char *help, const char *special)
{
    enum { ENOUGH = 20 };
    const char *end = strlen(help) > ENOUGH ? help + ENOUGH : help;
    end += strcspn(end, ":;(");
    while (end[-1] == ' ')
        end--;
    for (; help < end; help++) {
        if (strchr(special, *help))
            putchar('\\');
        print_quoted(*help);
    }
}

static void print_choices(const char *words)
{
    for (const char *at = words; *at; at++)
        putchar(*at == '|' ? ' ' : *at);
}

static void print_passes(void)
{
    for (int i = 0; i < npasses; i++)
        printf("%s%s", i ? " " : "", passes[i].name);
}

static void print_commands(const char *separator)
{
    for (int i = 0; i < NCOMMANDS; i++)
        printf("%s%s", i ? separator : "", command_table[i].name);
}

/* --- bash ------------------------------------------------------------------------------------ */

static void print_bash_command(int command)
{
    Word word;
    printf("    %s)\n        words=\"--help", command_table[command].name);
    for (int i = 0; i < count_words(); i++)
        if (word_at(command, i, &word))
            printf(" --%s%s", word.name.text, takes_value(&word) ? "=" : "");
    if (command == INDEX_HELP) {
        putchar(' ');
        print_commands(" ");
    }
    const OptionName operand = word_of_operand(command), ending = ending_of(command);
    printf("%s%s\"\n        files='%s%s'\n        ;;\n", *operand.text ? " " : "", operand.text,
           *ending.text ? "*." : "", ending.text);
}

static void print_bash(void)
{
    printf("# Completion of mpc for bash, made by 'mpc help --as=bash' from driver/options.def.\n"
           "_mpc()\n{\n    local word=${COMP_WORDS[COMP_CWORD]} words files=\n"
           "    case ${COMP_WORDS[COMP_CWORD - 1]} in =) COMPREPLY=($(compgen -f -- \"$word\")) && return ;; esac\n"
           "    if [ \"$COMP_CWORD\" = 1 ]; then\n        COMPREPLY=($(compgen -W \"");
    print_commands(" ");
    printf(" --help --version\" -- \"$word\"))\n        return\n    fi\n    case ${COMP_WORDS[1]} in\n");
    for (int i = 0; i < NCOMMANDS; i++)
        print_bash_command(i);
    printf("    esac\n    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
           "    [ -z \"$files\" ] || COMPREPLY+=($(compgen -f -X \"!$files\" -- \"$word\") $(compgen -d -S / -- "
           "\"$word\"))\n"
           "    case ${COMPREPLY[0]} in *[=/]) compopt -o nospace ;; esac\n}\ncomplete -o filenames -F _mpc mpc\n");
}

/* --- zsh ------------------------------------------------------------------------------------- */

/* What follows the name of an option: ":DIR:_files", ":N:", ":word:(a b)". */
static void print_zsh_value(const Word *word)
{
    if (word->kind == FLAG)
        return;
    printf(word->kind == SWITCH ? "::" : ":");
    for (const char *at = word->value; *at; at++)
        printf(*at == ':' ? "\\:" : "%c", *at);
    printf(":");
    if (word->kind == CHOICE || word->kind == SWITCH) {
        putchar('(');
        print_choices(word->value);
        putchar(')');
    } else if (word->kind == PASSES) {
        printf("_values -s , pass ");
        print_passes();
    } else if (names_file(word->value)) {
        printf("_files");
    }
}

static void print_zsh_option(const Word *word)
{
    const char *sign = word->kind == SWITCH ? "=-" : takes_value(word) ? "=" : "";
    printf(" \\\n            ");
    if (word->kind == LIST)
        printf("'*'");
    if (word->letter)
        printf("{-%c+,--%s%s}", word->letter, word->name.text, sign);
    else
        printf("'--%s%s'", word->name.text, sign);
    printf("'[");
    print_brief(word->help, "[]\\");
    printf("]");
    print_zsh_value(word);
    printf("'");
}

static void print_zsh_command(int command)
{
    Word word;
    printf("    %s)\n        _arguments -s '--help[explain the command]'", command_table[command].name);
    for (int i = 0; i < count_words(); i++)
        if (word_at(command, i, &word))
            print_zsh_option(&word);
    const OptionName operand = word_of_operand(command), ending = ending_of(command);
    if (command == INDEX_HELP) {
        printf(" \\\n            ':command:(");
        print_commands(" ");
        printf(")'");
    }
    if (*operand.text)
        printf(" \\\n            ':word:(%s)'", operand.text);
    if (*ending.text)
        printf(" \\\n            '*:file:_files -g \"*.%s\"'", ending.text);
    if (takes_folder(command))
        printf(" \\\n            ':folder:_files -/'");
    printf("\n        ;;\n");
}

static void print_zsh(void)
{
    printf("#compdef mpc\n# Completion of mpc for zsh, made by 'mpc help --as=zsh' from driver/options.def.\n"
           "local -a commands=(\n");
    for (int i = 0; i < NCOMMANDS; i++) {
        printf("    '%s:", command_table[i].name);
        print_phrase(i);
        printf("'\n");
    }
    printf(")\nif ((CURRENT == 2)); then\n    _describe -t commands command commands\n"
           "    _arguments '--help[list the commands]' '--version[print the version]'\n    return\nfi\n"
           "local command=$words[2]\nshift words\n((CURRENT--))\ncase $command in\n");
    for (int i = 0; i < NCOMMANDS; i++)
        print_zsh_command(i);
    printf("esac\n");
}

/* --- fish ------------------------------------------------------------------------------------ */

static void print_fish_option(int command, const Word *word)
{
    printf("complete -c mpc -n '__mpc_has %s' -l %s", command_table[command].name, word->name.text);
    if (word->letter)
        printf(" -s %c", word->letter);
    if (word->kind == CHOICE) {
        printf(" -x -a '");
        print_choices(word->value);
        printf("'");
    } else if (word->kind == PASSES) {
        printf(" -x -a '");
        print_passes();
        printf("'");
    } else if (takes_value(word)) {
        printf(names_file(word->value) ? " -r -F" : " -x");
    }
    printf(" -d '");
    print_brief(word->help, "");
    printf("'\n");
}

static void print_fish_command(int command)
{
    const char *name = command_table[command].name;
    const OptionName operand = word_of_operand(command), ending = ending_of(command);
    Word word;
    for (int i = 0; i < count_words(); i++)
        if (word_at(command, i, &word))
            print_fish_option(command, &word);
    if (*operand.text)
        printf("complete -c mpc -n '__mpc_has %s' -a %s\n", name, operand.text);
    if (*ending.text)
        printf("complete -c mpc -n '__mpc_has %s' -k -a '(__fish_complete_suffix .%s)'\n", name, ending.text);
    if (takes_folder(command))
        printf("complete -c mpc -n '__mpc_has %s' -a '(__fish_complete_directories)'\n", name);
    if (command == INDEX_HELP) {
        printf("complete -c mpc -n '__mpc_has %s' -a '", name);
        print_commands(" ");
        printf("'\n");
    }
}

static void print_fish(void)
{
    printf("# Completion of mpc for fish, made by 'mpc help --as=fish' from driver/options.def.\n"
           "function __mpc_has\n    set -l words (commandline -opc)\n"
           "    test (count $words) -gt 1; and test $words[2] = $argv[1]\nend\n"
           "complete -c mpc -f\ncomplete -c mpc -l help -d 'explain a command, or list them'\n"
           "complete -c mpc -n __fish_is_first_token -l version -d 'print the version'\n");
    for (int i = 0; i < NCOMMANDS; i++) {
        printf("complete -c mpc -n __fish_is_first_token -a %s -d '", command_table[i].name);
        print_phrase(i);
        printf("'\n");
    }
    for (int i = 0; i < NCOMMANDS; i++)
        print_fish_command(i);
}

void print_completion(const char *shell)
{
    if (strcmp(shell, "bash") == 0)
        print_bash();
    else if (strcmp(shell, "zsh") == 0)
        print_zsh();
    else
        print_fish();
}
