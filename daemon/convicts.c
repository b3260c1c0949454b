/* convicts.c - the evidence that this peer holds, told to its node at a start.
 *
 * A node forgets with its process whom it convicted. The files in evidence/
 * remain (machine/evidence.c), and each proves by itself what it says; so each
 * is checked again, and one that a person put there, from another peer, counts
 * as well.
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

#define FILES_MAX 64 /* of a start; a node holds fewer */

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
    } else if (hash32_eq(&v.run, &d->node_options.run_id)) {
        id_short(&v.accused, id);
        log_info("state",
                 "%s is evidence against %s: it comes into no view "
                 "with the word of this peer",
                 path, id);
        node_convict(d->node, &v.accused);
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

        if (n < FILES_MAX && end != NULL && strcmp(end, ".evidence") == 0 &&
            file_path_join(path, dir, e->d_name, errmsg) == 0) {
            n++;
            take(d, path);
        }
    }
    if (open != NULL) {
        (void)closedir(open);
    }
}
