/* cli.c - main of `loco`: finds the command that the first words name. */
#include "daemon/cli.h"

#include <stdio.h>
#include <string.h>

#include "daemon/nearest.h"
#include "proto/base/err.h"
#ifdef LOCO_NETWORK
#include "proto/sign.h"
#endif

#define EXIT_CODES                                                             \
    "exit codes: 0 ok, 1 failure, 2 usage, 3 configuration or manifest,\n"     \
    "  4 state directory, 5 identity, 6 network, 7 incompatible run,\n"        \
    "  8 device, 9 out of memory or disk\n"

/* clang-format off */
static const struct cli_command commands[] = {
#ifdef LOCO_NETWORK
    {"quickstart", "[OPTIONS OF deploy/quickstart.sh]",
     "Train a first model with four peers on this machine",
     "loco quickstart --peers 4 --compare", cli_quickstart},
    {"data pack", "INPUT... --out DIR",
     "Make token shards from text, JSONL, directories or ready tokens",
     "loco data pack book.txt --out data --val-bytes 131072", cli_data_pack},
    {"data tokenize", "[FILE] [--tokenizer byte|FILE]",
     "Write the token ids of a text",
     "loco data tokenize book.txt --tokenizer tokenizer.json --format u32"
     " --out book.u32",
     cli_data_tokenize},
    {"data detokenize", "[FILE] [--tokenizer byte|FILE]",
     "Write the text of token ids",
     "loco data detokenize book.u32 --tokenizer tokenizer.json --format u32",
     cli_data_detokenize},
    {"data fetch", "RUN.yaml [--out DIR]",
     "Download the data of a run from its URLs",
     "loco data fetch run.yaml --out data", cli_data_fetch},
    {"run create", "--name NAME --model NAME|FILE --data DIR --sync PRESET",
     "Write a signed run.yaml and print the run id",
     "loco run create --name first --model quickstart-1m --data data"
     " --sync opendiloco --set stop.rounds=24 --out data/run.yaml",
     cli_run_create},
    {"run show", "(FILE | --state DIR)",
     "Check a run's manifest and show what it says and asks for",
     "loco run show data/run.yaml", cli_run_show},
    {"run sign", "FILE", "Sign a run.yaml whose values were changed: a new run",
     "loco run sign data/run.yaml", cli_run_sign},
    {"run invite", "RUN.YAML --host HOST:PORT",
     "Print an address by which one peer may join a run for invited peers",
     "loco run invite data/run.yaml --host first.example:7700 --days 30"
     " --note Anna",
     cli_run_invite},
    {"run revoke", "RUN.YAML NUMBER... --state DIR",
     "Let invitations end: their peers are refused from now on",
     "loco run revoke data/run.yaml 3 --state ~/a", cli_run_revoke},
    {"status", "[--state DIR | --control ADDRESS]",
     "Show what a daemon is doing", "loco status --state ~/a --json",
     cli_status},
    {"rounds explain", "N [--state DIR | --control ADDRESS]",
     "Say who took part in a round, what it waited for and what went wrong",
     "loco rounds explain 412 --state ~/a", cli_rounds_explain},
    {"rounds", "[--state DIR | --control ADDRESS]",
     "List the last attempts at rounds with their phases",
     "loco rounds --state ~/a --last 5", cli_rounds},
    {"peers", "[--state DIR | --control ADDRESS]",
     "List the peers: state, speed, links, what each gave",
     "loco peers --state ~/a", cli_peers},
    {"join", "URI", "Take part in a run, with a live view",
     "loco join loco://HOST:PORT/RUNID", cli_join},
    {"top", "[STATE...]", "Watch one or more daemons live",
     "loco top ~/a ~/b", cli_top},
    {"pause", "[--state DIR | --control ADDRESS]",
     "Stop training until resumed; the peer stays a member",
     "loco pause --state ~/a", cli_pause},
    {"resume", "[--state DIR | --control ADDRESS]",
     "Train on after a pause", "loco resume --state ~/a", cli_resume},
    {"reload", "[--state DIR | --control ADDRESS]",
     "Let a daemon read its settings again", "loco reload --state ~/a",
     cli_reload},
    {"access", "[--state DIR] [--new]",
     "Show or renew the tokens that let others ask a daemon",
     "loco access --state ~/a", cli_access},
    {"drain", "[--state DIR | --control ADDRESS]",
     "Finish the round in flight, say goodbye and exit",
     "loco drain --state ~/a", cli_drain},
    {"import", "DIR --out FILE",
     "Read a Llama of Hugging Face: one file for eval and generate",
     "loco import Llama-3.2-1B --out llama.safetensors --seq 1024", cli_import},
    {"export", "(--state DIR | --model DIR|FILE) --out DIR",
     "Write the model for Hugging Face transformers",
     "loco export --state ~/a --format hf --out model", cli_export},
    {"eval", "(--state DIR | --model DIR|FILE) --text FILE",
     "Bits per byte of a model on a text",
     "loco eval --model model --text held-out.txt --json", cli_eval},
    {"generate", "(--model DIR|FILE | --state DIR) --prompt TEXT",
     "Let a model go on with a text",
     "loco generate --model model --prompt 'The LORD' --max-tokens 200",
     cli_generate},
    {"verify", "(FILE | --state DIR)",
     "Check a run.yaml with its shards, or a state directory",
     "loco verify data/run.yaml", cli_verify},
    {"stages", "[--join URI | --invitation FILE] DIR",
     "Fetch the other stages of a model that is cut, so that one state"
     " directory is enough",
     "loco stages ~/.local/share/loco", cli_stages},
    {"doctor", "[--state DIR] [--join URI] [--run FILE]",
     "Say what keeps this machine from taking part, and how to repair it",
     "loco doctor --join loco://HOST:PORT/RUNID", cli_doctor},
    {"keys backup", "(--out FILE | --words) [--state DIR]",
     "Copy the identity to a file, or print it as 24 words",
     "loco keys backup --state ~/a --out key.backup", cli_keys_backup},
    {"keys restore", "(FILE | --words) [--state DIR]",
     "Put an identity into a state directory that has none",
     "loco keys restore key.backup --state ~/b", cli_keys_restore},
    {"keys", "[--state DIR]", "Show the identity of a state directory",
     "loco keys --state ~/a", cli_keys},
    {"config show", "[OPTIONS OF locod]", "Show the daemon's settings",
     "loco config show --threads 4", cli_config_show},
    {"config sources", "[OPTIONS OF locod]",
     "Show the settings and where each one comes from",
     "loco config sources", cli_config_sources},
    {"config validate", "[OPTIONS OF locod]",
     "Check the settings and say nothing when they are right",
     "loco config validate --config locod.yaml", cli_config_validate},
    {"config set", "NAME VALUE [--config FILE]",
     "Write one setting to locod.yaml",
     "loco config set upload_bytes_per_s 2000000", cli_config_set},
    {"completion", "bash|zsh|fish", "Print a completion script for a shell",
     "loco completion bash > ~/.local/share/bash-completion/completions/loco",
     cli_completion},
    {"manual", "1|5|8", "Print a man page: loco, locod.yaml or locod",
     "loco manual 1 | man -l -", cli_manual},
    {"bench allreduce", "--peers N --elements E --wire NAME",
     "Measure the averaging of a vector over the network",
     "loco bench allreduce --peers 4 --elements 16777216 --wire fp16",
     cli_bench_allreduce},
    {"sim train", "--sync PRESET --peers M --tokens N",
     "Try a training method on real text before the run",
     "loco sim train --sync diloco --peers 4 --tokens 2000000"
     " --set sync.period=20 --plot diloco.svg",
     cli_sim_train},
    {"sim wallclock", "[--params P] [--tokens D] [--mbit RATE]",
     "Hours of a run with every method, by arithmetic",
     "loco sim wallclock --params 7e9 --tokens 140e9 --mbit 100",
     cli_sim_wallclock},
    {"sim", "SCENARIO", "Run a scenario of many peers in virtual time",
     "loco sim dht --peers 10000 --seed 1", cli_sim},
#endif
    {"bench train", "--config NAME|FILE", "Measure training speed",
     "loco bench train --config quickstart-1m --batch 4 --threads 2",
     cli_bench_train},
};
/* clang-format on */

#define N_COMMANDS (sizeof commands / sizeof commands[0])

const struct cli_command *cli_commands(size_t *n)
{
    *n = N_COMMANDS;
    return commands;
}

/* Words of the row's name that argv starts with; 0: not this command. */
static int words_match(const char *name, int argc, char **argv)
{
    const char *space = strchr(name, ' ');

    if (argc < 1) {
        return 0;
    }
    if (space == NULL) {
        return strcmp(name, argv[0]) == 0 ? 1 : 0;
    }
    return argc >= 2 && strlen(argv[0]) == (size_t)(space - name) &&
                   strncmp(name, argv[0], strlen(argv[0])) == 0 &&
                   strcmp(space + 1, argv[1]) == 0
               ? 2
               : 0;
}

/* Whether some command's first word of two is `word`. */
static int is_group(const char *word)
{
    size_t len = strlen(word);

    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strncmp(commands[i].name, word, len) == 0 &&
            commands[i].name[len] == ' ') {
            return 1;
        }
    }
    return 0;
}

static void print_overview(FILE *to, const char *group)
{
    size_t len = group == NULL ? 0 : strlen(group);

    (void)fprintf(to,
                  "loco %s - train one language model together\n\n"
                  "use: loco COMMAND [--help]\n\n",
                  LOCO_VERSION);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (group == NULL || (strncmp(commands[i].name, group, len) == 0 &&
                              commands[i].name[len] == ' ')) {
            (void)fprintf(to, "  %-16s %s\n", commands[i].name,
                          commands[i].summary);
        }
    }
    (void)fprintf(to, "\n" EXIT_CODES);
}

static int unknown(int argc, char **argv)
{
    const char *names[N_COMMANDS];
    const char *near;
    char word[2 * NEAREST_WORD_MAX];
    int n = argc >= 2 && (is_group(argv[0]) || argv[1][0] != '-') ? 2 : 1;

    for (size_t i = 0; i < N_COMMANDS; i++) {
        names[i] = commands[i].name;
    }
    (void)snprintf(word, sizeof word, "%s", argv[0]);
    near = nearest_word(word, names, N_COMMANDS);
    if (n == 2) {
        const char *two;
        char words[2 * NEAREST_WORD_MAX];

        (void)snprintf(words, sizeof words, "%.46s %.46s", argv[0], argv[1]);
        two = nearest_word(words, names, N_COMMANDS);
        if (two != NULL || near == NULL) {
            near = two;
            memcpy(word, words, sizeof word);
        }
    }
    if (near != NULL) {
        return cli_fail(TROUBLE_USAGE,
                        "unknown command '%s'; did you mean 'loco %s'?", word,
                        near);
    }
    return cli_fail(TROUBLE_USAGE,
                    "unknown command '%s'; loco --help lists them all", word);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_overview(stderr, NULL);
        return LOCO_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_overview(stdout, NULL);
        return LOCO_EXIT_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        (void)printf("loco %s\n", LOCO_VERSION);
        return LOCO_EXIT_OK;
    }
#ifdef LOCO_NETWORK
    if (sign_start() != 0) {
        return cli_fail(TROUBLE_FILE, "this system gives no random numbers");
    }
#endif
    for (size_t i = 0; i < N_COMMANDS; i++) {
        int n = words_match(commands[i].name, argc - 1, argv + 1);

        if (n > 0) {
            struct cli_call call = {&commands[i], argc - 1 - n, argv + 1 + n,
                                    NULL, NULL};

            return commands[i].run(&call);
        }
    }
    if (is_group(argv[1]) && (argc == 2 || strcmp(argv[2], "--help") == 0 ||
                              strcmp(argv[2], "-h") == 0)) {
        print_overview(argc == 2 ? stderr : stdout, argv[1]);
        return argc == 2 ? LOCO_EXIT_USAGE : LOCO_EXIT_OK;
    }
    return unknown(argc - 1, argv + 1);
}
