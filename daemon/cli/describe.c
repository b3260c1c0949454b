/* describe.c - loco completion, loco manual: what can be typed, for shells
 * and for man.
 *
 * The one table is that of the commands (cli.c) with the options that each
 * declares: a command that is called with `on_option` names its options to us
 * instead of running (cli_parse). The settings of locod are options.def. So
 * neither completion nor manual can name what the parser does not know.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "daemon/cli/cli.h"
#include "daemon/settings/config.h"
#include "proto/base/err.h"

#define OPTIONS_MAX 64

struct described {
    size_t n;
    struct cli_option option[OPTIONS_MAX]; /* `to` is not ours to use */
};

static void on_option(void *data, const struct cli_option *o)
{
    struct described *d = data;

    if (d->n < OPTIONS_MAX) {
        d->option[d->n++] = *o;
    }
}

/* The texts of options are literals: they outlive the call. */
static void describe(const struct cli_command *c, struct described *d)
{
    char *none[] = {NULL};
    struct cli_call call = {c, 0, none, on_option, d};

    d->n = 0;
    (void)c->run(&call);
}

/* "a|b|c" as words; "" where the argument is no such list. */
static void choices(const char *argument, char out[256])
{
    bool list = argument != NULL && strchr(argument, '|') != NULL &&
                strpbrk(argument, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == NULL;

    (void)snprintf(out, 256, "%s", list ? argument : "");
    for (char *c = out; *c != '\0'; c++) {
        *c = *c == '|' ? ' ' : *c;
    }
}

/* What an argument named so wants: 'f' a file, 'd' a directory, 0 neither. */
static char wants(const char *argument)
{
    if (argument == NULL) {
        return 0;
    }
    return strstr(argument, "DIR") != NULL    ? 'd'
           : strstr(argument, "FILE") != NULL ? 'f'
                                              : 0;
}

/* A setting as a flag of locod. */
static void setting_flag(enum config_option o, char out[64])
{
    (void)snprintf(out, 64, "--%s", config_name(o));
    for (char *c = out; *c != '\0'; c++) {
        *c = *c == '_' ? '-' : *c;
    }
}

/* ---- bash ---------------------------------------------------------------- */

static void
bash_value(const char *command, const char *flag, const char *argument)
{
    char words[256];

    choices(argument, words);
    if (words[0] != '\0') {
        (void)printf("    '%s %s') words='%s' ;;\n", command, flag, words);
    } else if (wants(argument) != 0) {
        (void)printf("    '%s %s') COMPREPLY=($(compgen -%c -- \"$cur\"))\n"
                     "        return ;;\n",
                     command, flag, wants(argument));
    } else if (argument != NULL && argument[0] != '\0') {
        (void)printf("    '%s %s') return ;;\n", command, flag);
    }
}

static void bash_options(const struct cli_command *commands, size_t n)
{
    static struct described d;

    (void)printf("    case $command in\n");
    for (size_t i = 0; i < n; i++) {
        describe(&commands[i], &d);
        (void)printf("    '%s') words=\"$words --help", commands[i].name);
        for (size_t j = 0; j < d.n; j++) {
            (void)printf(" %s", d.option[j].name);
        }
        (void)printf("\" ;;\n");
    }
    (void)printf("    esac\n    case \"$command $prev\" in\n");
    for (size_t i = 0; i < n; i++) {
        describe(&commands[i], &d);
        for (size_t j = 0; j < d.n; j++) {
            bash_value(commands[i].name, d.option[j].name,
                       d.option[j].argument);
        }
    }
    (void)printf("    esac\n");
}

/* Words one and two of the commands' names, by group. */
static void bash_words(const struct cli_command *commands, size_t n)
{
    (void)printf("    case $COMP_CWORD in\n    1) words='--help --version");
    for (size_t i = 0; i < n; i++) {
        size_t len = strcspn(commands[i].name, " ");

        if (i == 0 || strncmp(commands[i].name, commands[i - 1].name, len) ||
            strcspn(commands[i - 1].name, " ") != len) {
            (void)printf(" %.*s", (int)len, commands[i].name);
        }
    }
    (void)printf("' ;;\n    2) case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; i < n; i++) {
        const char *space = strchr(commands[i].name, ' ');

        if (space != NULL) {
            (void)printf("        %.*s) words=\"$words %s\" ;;&\n",
                         (int)(space - commands[i].name), commands[i].name,
                         space + 1);
        }
    }
    (void)printf("        esac ;;\n    esac\n");
}

static void bash(const struct cli_command *commands, size_t n)
{
    char flag[64];

    (void)printf("# bash completion of loco and locod; made by: loco "
                 "completion bash\n"
                 "_loco() {\n"
                 "    local cur=${COMP_WORDS[COMP_CWORD]}\n"
                 "    local prev=${COMP_WORDS[COMP_CWORD-1]} words= command= "
                 "name\n"
                 "    COMPREPLY=()\n");
    (void)printf("    for name in");
    for (size_t i = 0; i < n; i++) {
        (void)printf(" '%s'", commands[i].name);
    }
    (void)printf("; do\n"
                 "        case \"$name\" in\n"
                 "        *' '*) [ \"$COMP_CWORD\" -ge 3 ] && "
                 "[ \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" = \"$name\" ] && "
                 "{ command=$name; break; } ;;\n"
                 "        *) [ \"$COMP_CWORD\" -ge 2 ] && "
                 "[ \"${COMP_WORDS[1]}\" = \"$name\" ] && command=$name ;;\n"
                 "        esac\n"
                 "    done\n");
    bash_words(commands, n);
    bash_options(commands, n);
    (void)printf("    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\n"
                 "_locod() {\n"
                 "    local cur=${COMP_WORDS[COMP_CWORD]} words\n"
                 "    local prev=${COMP_WORDS[COMP_CWORD-1]}\n"
                 "    COMPREPLY=()\n    words='--help --version --config");
    for (int i = 0; i < CONFIG_OPTION_COUNT; i++) {
        setting_flag((enum config_option)i, flag);
        (void)printf(" %s", flag);
    }
    (void)printf("'\n    case \"locod $prev\" in\n"
                 "    'locod --config') COMPREPLY=($(compgen -f -- \"$cur\"))\n"
                 "        return ;;\n");
    for (int i = 0; i < CONFIG_OPTION_COUNT; i++) {
        setting_flag((enum config_option)i, flag);
        bash_value("locod", flag, config_argument((enum config_option)i));
    }
    (void)printf("    esac\n    COMPREPLY=($(compgen -W \"$words\" -- "
                 "\"$cur\"))\n}\n"
                 "complete -o default -F _loco loco\n"
                 "complete -o default -F _locod locod\n");
}

/* ---- zsh ----------------------------------------------------------------- */

/* Text inside of single quotes, with what `outer` escapes. */
static void quoted(const char *text, const char *escape)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            (void)printf("'\\''");
        } else {
            (void)printf(strchr(escape, *text) != NULL ? "\\%c" : "%c", *text);
        }
    }
}

/* One line of _arguments: '--state[help]:DIR:_files -/' */
static void zsh_option(const char *flag, const char *argument, const char *help)
{
    char words[256];

    choices(argument, words);
    (void)printf("        '*%s[", flag);
    quoted(help, "[]\\");
    (void)printf("]");
    if (argument != NULL && argument[0] != '\0') {
        (void)printf(":");
        quoted(argument, ":\\");
        (void)printf(":");
        if (words[0] != '\0') {
            (void)printf("(%s)", words);
        } else if (wants(argument) != 0) {
            (void)printf(wants(argument) == 'd' ? "_files -/" : "_files");
        }
    }
    (void)printf("' \\\n");
}

static void zsh(const struct cli_command *commands, size_t n)
{
    static struct described d;
    char flag[64];

    (void)printf("#compdef loco locod\n"
                 "# zsh completion of loco and locod; made by: loco completion "
                 "zsh\n"
                 "_loco_commands() {\n    local -a list\n    list=(\n");
    for (size_t i = 0; i < n; i++) {
        (void)printf("        '%s:", commands[i].name);
        quoted(commands[i].summary, ":\\");
        (void)printf("'\n");
    }
    (void)printf("    )\n"
                 "    if (( CURRENT == 2 )); then\n"
                 "        list=(${(u)list[@]/ [^:]#:/:})\n"
                 "    else\n"
                 "        list=(${(M)list:#${words[2]} *})\n"
                 "        list=(${list[@]#${words[2]} })\n"
                 "    fi\n"
                 "    _describe command list\n}\n"
                 "_loco() {\n    setopt localoptions extendedglob\n"
                 "    if (( CURRENT == 2 )); then\n"
                 "        _loco_commands\n        return\n    fi\n"
                 "    case \"${words[2]} ${words[3]}\" in\n");
    for (int two = 1; two >= 0; two--) {
        for (size_t i = 0; i < n; i++) {
            if ((strchr(commands[i].name, ' ') != NULL) != (two == 1)) {
                continue;
            }
            describe(&commands[i], &d);
            (void)printf("    '%s%s) ", commands[i].name, two ? "'" : " '*");
            (void)printf("(( CURRENT == 3 )) && _loco_commands\n"
                         "        _arguments \\\n");
            for (size_t j = 0; j < d.n; j++) {
                zsh_option(d.option[j].name, d.option[j].argument,
                           d.option[j].help);
            }
            (void)printf("        '--help[print the help]' "
                         "'*:argument:_files' ;;\n");
        }
    }
    (void)printf("    *) (( CURRENT == 3 )) && _loco_commands ;;\n    esac\n}\n"
                 "_locod() {\n    _arguments \\\n");
    for (int i = 0; i < CONFIG_OPTION_COUNT; i++) {
        setting_flag((enum config_option)i, flag);
        zsh_option(flag, config_argument((enum config_option)i),
                   config_help((enum config_option)i));
    }
    (void)printf("        '--config[settings file]:FILE:_files' \\\n"
                 "        '--help[print the help]' '--version[print the "
                 "version]'\n}\n"
                 "if [[ $service == locod ]]; then _locod \"$@\"; "
                 "else _loco \"$@\"; fi\n");
}

/* ---- fish ---------------------------------------------------------------- */

static void fish_option(const char *program,
                        const char *condition,
                        const char *flag,
                        const char *argument,
                        const char *help)
{
    char words[256];

    choices(argument, words);
    (void)printf("complete -c %s%s -l %s", program, condition, flag + 2);
    if (words[0] != '\0') {
        (void)printf(" -x -a '%s'", words);
    } else if (wants(argument) != 0) {
        (void)printf(" -r -F");
    } else if (argument != NULL && argument[0] != '\0') {
        (void)printf(" -x");
    }
    (void)printf(" -d '");
    quoted(help, "");
    (void)printf("'\n");
}

static void fish(const struct cli_command *commands, size_t n)
{
    static struct described d;
    char flag[64], condition[128];

    (void)printf("# fish completion of loco and locod; made by: loco "
                 "completion fish\n"
                 "function __loco_at\n"
                 "    set -l typed (commandline -opc)\n"
                 "    test \"$typed[2..-1]\" = \"$argv\"\n"
                 "    or string match -q -- \"$argv *\" \"$typed[2..-1]\"\n"
                 "end\n"
                 "function __loco_just\n"
                 "    set -l typed (commandline -opc)\n"
                 "    test \"$typed[2..-1]\" = \"$argv\"\n"
                 "end\n");
    for (size_t i = 0; i < n; i++) {
        const char *name = commands[i].name, *space = strchr(name, ' ');
        int len = (int)strcspn(name, " ");

        (void)printf("complete -c loco -f -n '__loco_just' -a '%.*s' -d '", len,
                     name);
        quoted(space == NULL ? commands[i].summary : "several commands", "");
        (void)printf("'\n");
        if (space != NULL) {
            (void)printf("complete -c loco -n '__loco_just %.*s' -a '%s' -d '",
                         len, name, space + 1);
            quoted(commands[i].summary, "");
            (void)printf("'\n");
        }
        (void)snprintf(condition, sizeof condition, " -n '__loco_at %s'", name);
        describe(&commands[i], &d);
        for (size_t j = 0; j < d.n; j++) {
            fish_option("loco", condition, d.option[j].name,
                        d.option[j].argument, d.option[j].help);
        }
    }
    for (int i = 0; i < CONFIG_OPTION_COUNT; i++) {
        setting_flag((enum config_option)i, flag);
        fish_option("locod", "", flag, config_argument((enum config_option)i),
                    config_help((enum config_option)i));
    }
}

/* ---- man ----------------------------------------------------------------- */

/* Text for troff: no line may begin with a dot or a quote, - is a minus. */
static void roff(const char *text)
{
    if (*text == '.' || *text == '\'') {
        (void)printf("\\&");
    }
    for (; *text != '\0'; text++) {
        (void)printf(*text == '-'    ? "\\-"
                     : *text == '\\' ? "\\e"
                                     : "%c",
                     *text);
    }
}

static void roff_term(const char *name, const char *argument)
{
    (void)printf(".TP\n\\fB");
    roff(name);
    (void)printf("\\fR");
    if (argument != NULL && argument[0] != '\0') {
        (void)printf(" \\fI");
        roff(argument);
        (void)printf("\\fR");
    }
    (void)printf("\n");
}

static void man_exit_codes(void)
{
    (void)printf(".SH EXIT STATUS\n0 ok, 1 failure, 2 usage, 3 configuration "
                 "or manifest, 4 state directory, 5 identity, 6 network, "
                 "7 incompatible run, 8 device, 9 out of memory or disk.\n");
}

static void man_loco(const struct cli_command *commands, size_t n)
{
    static struct described d;

    (void)printf(".TH LOCO 1 \"\" \"loco %s\"\n.SH NAME\nloco \\- train one "
                 "language model together over the internet\n"
                 ".SH SYNOPSIS\n.B loco\n.I command\n[\\fIoptions\\fR]\n"
                 ".SH DESCRIPTION\nResults go to standard output, messages to "
                 "standard error. A command that asks a daemon uses the "
                 "default state directory, unless \\fB\\-\\-state\\fR or "
                 "\\fB\\-\\-control\\fR names another daemon. Output to a "
                 "terminal has colours, unless NO_COLOR is set.\n"
                 ".SH COMMANDS\n",
                 LOCO_VERSION);
    for (size_t i = 0; i < n; i++) {
        (void)printf(".SS loco ");
        roff(commands[i].name);
        (void)printf(" ");
        roff(commands[i].arguments);
        (void)printf("\n");
        roff(commands[i].summary);
        (void)printf(".\n");
        describe(&commands[i], &d);
        for (size_t j = 0; j < d.n; j++) {
            roff_term(d.option[j].name, d.option[j].argument);
            roff(d.option[j].help);
            (void)printf("\n");
        }
        (void)printf(".P\nExample:\n.nf\n    ");
        roff(commands[i].example);
        (void)printf("\n.fi\n");
    }
    man_exit_codes();
    (void)printf(".SH SEE ALSO\n.BR locod.yaml (5),\n.BR locod (8)\n");
}

static void man_settings(bool as_flags)
{
    char flag[64];
    static struct config defaults;
    static char text[CONFIG_TEXT_MAX];

    config_init(&defaults);
    for (int i = 0; i < CONFIG_OPTION_COUNT; i++) {
        enum config_option o = (enum config_option)i;

        setting_flag(o, flag);
        roff_term(as_flags ? flag : config_name(o), config_argument(o));
        roff(config_help(o));
        config_text(&defaults, o, text);
        (void)printf("%s", text[0] == '\0' ? "" : ". Default: ");
        roff(text);
        (void)printf("\n");
    }
}

static void man_yaml(const struct cli_command *commands, size_t n)
{
    (void)commands;
    (void)n;
    (void)printf(".TH LOCOD.YAML 5 \"\" \"loco %s\"\n.SH NAME\nlocod.yaml \\- "
                 "the settings of this machine's daemon\n.SH DESCRIPTION\n"
                 "Each line is \\fIname\\fR: \\fIvalue\\fR. The first of these "
                 "gives a value: the command line of \\fBlocod\\fR, the "
                 "environment (LOCO_ and the name in capitals), this file, the "
                 "default. \\fB\\-\\-config\\fR or LOCO_CONFIG names the file; "
                 "otherwise it is $XDG_CONFIG_HOME/loco/locod.yaml. An unknown "
                 "name is an error. \\fBloco config sources\\fR shows each "
                 "value and its source. A run can never exceed the limits that "
                 "are set here.\n.SH SETTINGS\n",
                 LOCO_VERSION);
    man_settings(false);
    (void)printf(".SH EXAMPLE\n.nf\nlisten: \"0.0.0.0:7700\"\n"
                 "upload_bytes_per_s: 2000000\n.fi\n"
                 ".SH SEE ALSO\n.BR loco (1),\n.BR locod (8)\n");
}

static void man_locod(const struct cli_command *commands, size_t n)
{
    (void)commands;
    (void)n;
    (void)printf(".TH LOCOD 8 \"\" \"loco %s\"\n.SH NAME\nlocod \\- the daemon "
                 "that trains\n.SH SYNOPSIS\n.B locod\n(\\fB\\-\\-run\\fR "
                 "\\fIFILE\\fR | \\fB\\-\\-join\\fR \\fIURI\\fR) "
                 "[\\fIoptions\\fR]\n.SH DESCRIPTION\nTakes part in one run "
                 "with one state directory, in the foreground.\n"
                 ".SH OPTIONS\n",
                 LOCO_VERSION);
    man_settings(true);
    (void)printf(".TP\n\\fB\\-\\-config\\fR \\fIFILE\\fR\nSettings file\n"
                 ".SH SIGNALS\nSIGTERM or SIGINT: finish the current round, "
                 "leave the run, exit 0. A second one: stop at once. SIGHUP: "
                 "reload the settings; those that can change live take "
                 "effect.\n"
                 ".SH FILES\nThe state directory: identity.key (mode 0600), "
                 "run.manifest, shards, checkpoints, peers, view.record, "
                 "control (the control address), lock.\n");
    man_exit_codes();
    (void)printf(".SH SEE ALSO\n.BR loco (1),\n.BR locod.yaml (5)\n");
}

/* ---- commands ------------------------------------------------------------ */

struct page {
    const char *name;
    void (*print)(const struct cli_command *, size_t);
};

/* Print the page that the only argument names; `sentence` lists the pages. */
static int print_page(const struct cli_call *call,
                      const struct page pages[3],
                      const char *sentence)
{
    struct cli_list words = {0};
    const struct cli_command *commands;
    size_t n;
    int rv = cli_parse(call, NULL, 0, &words, 1, 1);

    if (rv != CLI_GO) {
        return rv;
    }
    commands = cli_commands(&n);
    for (size_t i = 0; i < 3; i++) {
        if (strcmp(words.item[0], pages[i].name) == 0) {
            pages[i].print(commands, n);
            return LOCO_EXIT_OK;
        }
    }
    return cli_fail(TROUBLE_USAGE, "%s, not %.20s", sentence, words.item[0]);
}

int cli_completion(const struct cli_call *call)
{
    static const struct page shells[] = {
        {"bash", bash}, {"zsh", zsh}, {"fish", fish}};

    return print_page(call, shells,
                      "completion: the shell is bash, zsh or fish");
}

int cli_manual(const struct cli_call *call)
{
    static const struct page pages[] = {
        {"1", man_loco}, {"5", man_yaml}, {"8", man_locod}};

    return print_page(call, pages,
                      "manual: the page is 1 (loco), 5 (locod.yaml) or 8 "
                      "(locod)");
}
