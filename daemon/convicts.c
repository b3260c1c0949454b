/* convicts.c - the evidence that this peer holds, told to its node at a start.
 *
 * A node forgets with its process whom it convicted. The files in evidence/
 * remain (machine/evidence.c). Each is checked again. One about a sum proves by
 * itself what it says, so that one which a person put there, from another peer,
 * counts as well. One about work is what members of a view say: it counts where
 * this peer was a full member of that view, so that the view is no invention.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "daemon/jobs/evidence.h"
#include "daemon/locod.h"
#include "daemon/settings/state_dir.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"
#include "proto/base/log.h"

#define FILES_MAX 256 /* that are read in a start; a node has two a convict */

/* Whether what the file says counts here. */
static bool is_ours(const struct daemon *d, const struct evidence_verdict *v)
{
    bool member = v->finding != EVIDENCE_BAD_WORK;

    for (uint32_t i = 0; !member && i < v->n_members; i++) {
        member = id_eq(&v->member[i], &d->node_options.self);
    }
    return member && hash32_eq(&v->run, &d->node_options.run_id);
}

static void take(struct daemon *d, const char *path)
{
    struct signer signer = signer_sodium(NULL);
    struct evidence_verdict v;
    char errmsg[ERRMSG_SIZE], id[ID_SHORT_MAX];
    struct file_map map;
    int rv = file_map_open(&map, path, errmsg);

    if (rv == 0) {
        rv = evidence_check(map.data, map.size, &signer, &v, errmsg);
        file_map_close(&map);
    }
    if (rv != 0) {
        log_warn("state", "%s convicts nobody: %s", path, errmsg);
        return;
    }
    id_short(&v.accused, id);
    if (is_ours(d, &v)) {
        log_info("state",
                 "%s is evidence against %s: it comes into no view "
                 "with the word of this peer",
                 path, id);
        node_convict(d->node, &v.accused);
    } else {
        log_info("state",
                 "%s is of another run, or of a view without this peer: it "
                 "counts nothing here",
                 path);
    }
}

void load_convicts(struct daemon *d)
{
    char dir[FILE_PATH_MAX], path[FILE_PATH_MAX], errmsg[ERRMSG_SIZE];
    DIR *open;
    int n = 0;

    if (state_path(d, STATE_DIR_EVIDENCE, dir) != 0) {
        return;
    }
    open = opendir(dir);
    for (struct dirent *e; open != NULL && (e = readdir(open)) != NULL;) {
        const char *end = strrchr(e->d_name, '.');

        if (end == NULL || strcmp(end, ".evidence") != 0 ||
            file_path_join(path, dir, e->d_name, errmsg) != 0) {
            continue;
        }
        if (++n <= FILES_MAX) {
            take(d, path);
        }
    }
    if (n > FILES_MAX) {
        log_warn("state", "%s has %d files of evidence, of which %d were read",
                 dir, n, FILES_MAX);
    }
    if (open != NULL) {
        (void)closedir(open);
    }
}
