/* SPDX-License-Identifier: Apache-2.0 */
/* snug completion: the scripts with which bash, zsh and fish complete a command line, from the tables of commands and
 * arguments. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "help.h"

enum { WORD_MAX = 32 };

/* Calls put for each argument of a command: its own, then the library's. value_name is "" if it takes no value. */
static void each_argument(FILE *out, const struct cli_help *help,
                          void (*put)(FILE *out, const struct cli_help *help, const char *name, const char *value_name,
                                      const char *text)) {
    const snug_arg_info *info;
    for (const struct cli_option *option = help->options; option->name; option++)
        put(out, help, option->name, option->value, option->help);
    for (size_t i = 0; (info = snug_args_info(i)); i++)
        if (cli_help_concerns(help, info)) put(out, help, info->name, info->value_name, info->help);
    put(out, help, "help", "", "print the usage and all arguments");
}

static bool is_on_by_default(const struct cli_help *help, const char *name) {
    const snug_arg_info *info;
    for (size_t i = 0; (info = snug_args_info(i)); i++)
        if (strcmp(info->name, name) == 0)
            return cli_is_flag(info) && strcmp(cli_help_default(help, info), "True") == 0;
    return false;
}

/* text within single quotes; special characters get a backslash, too, and a single quote becomes quote. */
static void put_quoted(FILE *out, const char *text, const char *special, const char *quote) {
    for (; *text; text++) {
        if (*text == '\'') {
            fputs(quote, out);
            continue;
        }
        if (strchr(special, *text)) putc('\\', out);
        putc(*text, out);
    }
}

/* The second words of a command of two words, such as bench; "" if it has one. */
static void second_words(const char *command, char *words, size_t size) {
    const size_t length = strlen(command);
    size_t used = 0;
    *words = '\0';
    for (size_t i = 0; i < cli_help_count; i++) {
        const char *name = cli_helps[i].command;
        if (strncmp(name, command, length) == 0 && name[length] == ' ')
            used += (size_t)snprintf(words + used, size - used, "%s%s", used ? " " : "", name + length + 1);
    }
}

/* ---- bash ---------------------------------------------------------------------------------------------------- */

static void put_bash_name(FILE *out, const struct cli_help *help, const char *name, const char *value_name,
                          const char *text) {
    (void)value_name;
    (void)text;
    fprintf(out, " --%s%s", is_on_by_default(help, name) ? "no_" : "", name);
}

/* The names by which values are looked up: "-" became "_". */
static void put_bash_case(FILE *out, const snug_arg_info *info) {
    char aliases[256];
    fprintf(out, "    __%s", info->name);
    snprintf(aliases, sizeof aliases, "%s", info->aliases);
    for (char *rest = NULL, *alias = strtok_r(aliases, " ", &rest); alias; alias = strtok_r(NULL, " ", &rest))
        fprintf(out, " | __%s", alias);
    fputs(")", out);
}

static void put_bash_values(FILE *out) {
    const snug_arg_info *info;
    for (size_t i = 0; (info = snug_args_info(i)); i++) {
        struct cli_values values;
        cli_find_values(info->value_name, &values);
        put_bash_case(out, info);
        fprintf(out, " kind='%s' values='%s' ;;\n",
                cli_is_flag(info) ? "flag"
                : values.files    ? "file"
                : values.folders  ? "directory"
                                  : "value",
                values.words);
    }
}

static void put_bash_commands(FILE *out) {
    for (size_t i = 0; i < cli_help_count; i++) {
        struct cli_values values = {.files = false};
        if (cli_helps[i].operand) cli_find_values(cli_helps[i].operand, &values);
        fprintf(out, "    '%s') operand='%s' words='%s' options='", cli_helps[i].command,
                values.files     ? "file"
                : values.folders ? "directory"
                                 : "",
                values.words);
        each_argument(out, &cli_helps[i], put_bash_name);
        fputs("' ;;\n", out);
    }
}

static void put_command_names(FILE *out, const char *separator) {
    for (size_t i = 0; i < cli_command_count; i++)
        if (cli_commands[i].does) fprintf(out, "%s%s", cli_commands[i].name, separator);
}

static void print_bash(FILE *out) {
    fputs(
        "# bash completion of snug " SNUG_VERSION ", printed by `snug completion bash`\n\n"
        "# _snug_add actions of compgen: adds what they give for the current word, one per line\n"
        "_snug_add() {\n"
        "    local found\n"
        "    mapfile -t found < <(compgen \"$@\" -- \"$current\")\n"
        "    COMPREPLY+=(\"${found[@]}\")\n"
        "}\n\n"
        "# _snug_add_kind file|directory|value WORDS\n"
        "_snug_add_kind() {\n"
        "    case $1 in\n"
        "    file) compopt -o filenames; _snug_add -f ;;\n"
        "    directory) compopt -o filenames; _snug_add -d ;;\n"
        "    esac\n"
        "    [[ -z $2 ]] || _snug_add -W \"$2\"\n"
        "}\n\n"
        "_snug() {\n"
        "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}\n"
        "    local IFS=$' \\t\\n' first=2 kind='' values='' operand='' words='' options='' commands='",
        out);
    put_command_names(out, " ");
    fputs("help'\n"
          "    COMPREPLY=()\n"
          "    if ((COMP_CWORD == 1)); then\n"
          "        _snug_add -W \"$commands --help --version\"\n"
          "        return\n"
          "    fi\n"
          "    # in --name=value, \"=\" is a word\n"
          "    if [[ $current == '=' ]]; then\n"
          "        current=''\n"
          "    elif [[ $previous == '=' ]]; then\n"
          "        previous=${COMP_WORDS[COMP_CWORD - 2]}\n"
          "    fi\n"
          "    case $command in\n"
          "    help) words=$commands ;;\n",
          out);
    for (size_t i = 0; i < cli_command_count; i++) {
        char words[WORD_MAX * 4];
        second_words(cli_commands[i].name, words, sizeof words);
        if (*words)
            fprintf(out, "    %s) words='%s' first=3 command=\"%s ${COMP_WORDS[2]}\" ;;\n", cli_commands[i].name, words,
                    cli_commands[i].name);
    }
    fputs("    esac\n"
          "    if [[ -n $words ]] && ((COMP_CWORD == 2)); then\n"
          "        _snug_add -W \"$words\"\n"
          "        return\n"
          "    fi\n"
          "    words=''\n"
          "    case $command in\n",
          out);
    put_bash_commands(out);
    fputs("    esac\n"
          "    [[ $previous != --* ]] || case ${previous//-/_} in\n",
          out);
    put_bash_values(out);
    fputs("    esac\n"
          "    case $kind in\n"
          "    file | directory | value) _snug_add_kind $kind \"$values\"; return ;;\n"
          "    flag) _snug_add -W \"$values\" ;;\n"
          "    esac\n"
          "    if [[ $current == -* ]]; then\n"
          "        # \"-\" and \"_\" are the same in a name\n"
          "        current=${current#-} current=${current#-} current=--${current//-/_}\n"
          "        _snug_add -W \"$options\"\n"
          "        return\n"
          "    fi\n"
          "    if ((COMP_CWORD == first)) || [[ $operand == directory ]]; then _snug_add_kind \"$operand\" \"$words\"; "
          "fi\n"
          "    [[ -n $current || -n $words ]] || _snug_add -W \"$options\"\n"
          "}\n"
          "complete -F _snug snug\n",
          out);
}

/* ---- zsh ----------------------------------------------------------------------------------------------------- */

static void put_zsh_action(FILE *out, const char *value_name) {
    struct cli_values values;
    cli_find_values(value_name, &values);
    if (values.files)
        fputs("_files", out);
    else if (values.folders && *values.words)
        fprintf(out, "{ _files -/; compadd %s }", values.words);
    else if (values.folders)
        fputs("_files -/", out);
    else if (*values.words)
        fprintf(out, "(%s)", values.words);
    else
        putc(' ', out);
}

static void put_zsh_argument(FILE *out, const struct cli_help *help, const char *name, const char *value_name,
                             const char *text) {
    const bool on = is_on_by_default(help, name);
    fprintf(out, " \\\n        '--%s%s", on ? "no_" : "", name);
    /* A boolean's value is optional. */
    const bool optional = strcmp(value_name, "BOOL") == 0 || *value_name == '[';
    if (*value_name && !on) putc('=', out);
    putc('[', out);
    put_quoted(out, text, "[]:\\", "'\\''");
    putc(']', out);
    if (*value_name && !on) {
        fputs(optional ? "::" : ":", out);
        put_quoted(out, *value_name == '[' || strchr(value_name, '|') ? "value" : value_name, ":", "'\\''");
        putc(':', out);
        put_zsh_action(out, value_name);
    }
    putc('\'', out);
}

static void print_zsh(FILE *out) {
    fputs("#compdef snug\n"
          "# zsh completion of snug " SNUG_VERSION ", printed by `snug completion zsh`\n\n"
          "_snug() {\n"
          "    local -a commands=(",
          out);
    for (size_t i = 0; i < cli_command_count; i++) {
        if (!cli_commands[i].does) continue;
        fprintf(out, "\n        '%s:", cli_commands[i].name);
        put_quoted(out, cli_commands[i].does, ":\\", "'\\''");
        putc('\'', out);
    }
    fputs("\n        'help:print the usage of a command')\n"
          "    if ((CURRENT == 2)); then\n"
          "        _describe command commands\n"
          "        return\n"
          "    fi\n"
          "    shift words\n"
          "    ((CURRENT--))\n"
          "    local command=$words[1]\n"
          "    case $command in\n"
          "    help) _describe command commands; return ;;\n",
          out);
    for (size_t i = 0; i < cli_command_count; i++) {
        char words[WORD_MAX * 4];
        second_words(cli_commands[i].name, words, sizeof words);
        if (!*words) continue;
        fprintf(out,
                "    %s)\n"
                "        if ((CURRENT == 2)); then\n"
                "            compadd %s\n"
                "            return\n"
                "        fi\n"
                "        shift words\n"
                "        ((CURRENT--))\n"
                "        command=\"%s $words[1]\" ;;\n",
                cli_commands[i].name, words, cli_commands[i].name);
    }
    fputs("    esac\n"
          "    case $command in\n",
          out);
    for (size_t i = 0; i < cli_help_count; i++) {
        fprintf(out, "    '%s')\n        _arguments", cli_helps[i].command);
        each_argument(out, &cli_helps[i], put_zsh_argument);
        if (cli_helps[i].operand) {
            fprintf(out, " \\\n        '%c:argument:", strcmp(cli_helps[i].operand, "DIR") == 0 ? '*' : '1');
            put_zsh_action(out, cli_helps[i].operand);
            putc('\'', out);
        }
        fputs(" ;;\n", out);
    }
    fputs("    esac\n"
          "}\n\n"
          "if [[ $funcstack[1] == _snug ]]; then _snug \"$@\"; else compdef _snug snug; fi\n",
          out);
}

/* ---- fish ---------------------------------------------------------------------------------------------------- */

static void put_fish_values(FILE *out, const char *value_name) {
    struct cli_values values;
    cli_find_values(value_name, &values);
    if (values.files)
        fputs(" -F", out);
    else if (values.folders)
        fprintf(out, " -f -a '(__fish_complete_directories) %s'", values.words);
    else
        fprintf(out, " -f%s%s%s", *values.words ? " -a '" : "", values.words, *values.words ? "'" : "");
}

static void put_fish_argument(FILE *out, const struct cli_help *help, const char *name, const char *value_name,
                              const char *text) {
    const bool on = is_on_by_default(help, name);
    fprintf(out, "complete -c snug -n '__snug_is %s' -l %s%s", help->command, on ? "no_" : "", name);
    /* fish has no values that may be left out: a boolean is completed without one. */
    const bool needs_value = *value_name && *value_name != '[' && strcmp(value_name, "BOOL") != 0;
    if (needs_value) {
        fputs(" -r", out);
        put_fish_values(out, value_name);
    }
    fputs(" -d '", out);
    put_quoted(out, text, "\\", "\\'");
    fputs("'\n", out);
}

static void print_fish(FILE *out) {
    fputs("# fish completion of snug " SNUG_VERSION ", printed by `snug completion fish`\n\n"
          "# Whether the first words after snug are the given ones.\n"
          "function __snug_is\n"
          "    set -l words (commandline -opc)\n"
          "    set -l last (math 1 + (count $argv))\n"
          "    test (count $words) -ge $last; and test \"$words[2..$last]\" = \"$argv\"\n"
          "end\n\n"
          "complete -c snug -f\n"
          "complete -c snug -n 'test (count (commandline -opc)) -eq 1' -l help -d 'print the usage'\n"
          "complete -c snug -n 'test (count (commandline -opc)) -eq 1' -l version -d 'print the version'\n"
          "complete -c snug -n '__snug_is help' -a '",
          out);
    put_command_names(out, " ");
    fputs("'\n"
          "complete -c snug -n 'test (count (commandline -opc)) -eq 1' -a help -d 'print the usage of a command'\n",
          out);
    for (size_t i = 0; i < cli_command_count; i++) {
        char words[WORD_MAX * 4];
        if (!cli_commands[i].does) continue;
        fprintf(out, "complete -c snug -n 'test (count (commandline -opc)) -eq 1' -a %s -d '", cli_commands[i].name);
        put_quoted(out, cli_commands[i].does, "\\", "\\'");
        fputs("'\n", out);
        second_words(cli_commands[i].name, words, sizeof words);
        if (*words)
            fprintf(out, "complete -c snug -n '__snug_is %s; and test (count (commandline -opc)) -eq 2' -a '%s'\n",
                    cli_commands[i].name, words);
    }
    for (size_t i = 0; i < cli_help_count; i++) {
        each_argument(out, &cli_helps[i], put_fish_argument);
        if (!cli_helps[i].operand) continue;
        fprintf(out, "complete -c snug -n '__snug_is %s'", cli_helps[i].command);
        put_fish_values(out, cli_helps[i].operand);
        putc('\n', out);
    }
}

int command_completion(int argc, char **argv) {
    static const struct {
        const char *shell;
        void (*print)(FILE *out);
    } scripts[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    struct cli cli = {0};
    progress_begin(&cli.progress);
    for (size_t i = 0; argc == 2 && i < sizeof scripts / sizeof *scripts; i++) {
        if (strcmp(argv[1], scripts[i].shell) != 0) continue;
        char *script = NULL;
        size_t size;
        FILE *out = open_memstream(&script, &size);
        if (out) scripts[i].print(out);
        if (!out || fclose(out) != 0) {
            fputs("snug: out of memory\n", stderr);
            return EXIT_FAILED;
        }
        cli_put(&cli, script);
        free(script);
        return cli_finish(&cli, SNUG_OK);
    }
    const bool help = argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    if (!help) fputs("snug completion: name one shell: bash, zsh or fish\n", stderr);
    cli_help(help ? stdout : stderr, argv[0], true);
    return help ? cli_finish(&cli, SNUG_OK) : EXIT_USAGE;
}
