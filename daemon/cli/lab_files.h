/* lab_files.h - what `loco sim train` and `sim byzantine` read and write.
 *
 * Tables of machines and of comings and goings (formats: cli/lab_setup.h), the
 * text to train on, the points as CSV, the curves as SVG. All failures are
 * LOCO_E* codes with file, line and a sentence in errmsg. Files may come from
 * strangers: lines and tables are bounded.
 */
#ifndef LOCO_DAEMON_CLI_LAB_FILES_H
#define LOCO_DAEMON_CLI_LAB_FILES_H

#include "train/lab/lab.h"

/* machines (LAB_PEERS_MAX). Without a file: 10,000 tokens/s, 100 Mbit/s each
 * way, 20 ms for all. */
int lab_links_read(const char *path,
                   struct lab_machine machines[LAB_PEERS_MAX],
                   char *errmsg);

/* events (LAB_EVENTS_MAX), sorted by tokens; none without a file. */
int lab_members_read(const char *path,
                     struct lab_event events[LAB_EVENTS_MAX],
                     size_t *n,
                     char *errmsg);

#define LAB_TEXT_SHARDS_MAX 256

struct lab_text {
    struct shard *train; /* (n_train) */
    size_t n_train;
    struct shard val;
    bool has_val;
};

/* Open what `loco data pack` wrote. Without a directory: the prose of
 * deploy/text.sh, packed once into the user's cache. lab_text_close afterwards,
 * whatever the result. */
int lab_text_open(struct lab_text *t, const char *dir, char *errmsg);
void lab_text_close(struct lab_text *t);

/* data.json of a directory that loco data pack wrote; NULL with a sentence. The
 * caller gives it back with json_decref(). */
struct json_t *lab_text_list(const char *dir, char *errmsg);

/* tokens,turns,virtual_s,loss,bits_per_byte,bytes_sent,peers */
int lab_csv_write(const char *path, const struct lab_result *r, char *errmsg);

/* Loss of the inner steps and held-out loss (nats) against tokens. */
int lab_plot_write(const char *path,
                   const char *title,
                   const struct lab_result *r,
                   char *errmsg);

#endif
