/* model_file.h - a model by name, or from a small YAML file of its shape.
 *
 * The file holds one "key: value" line per field of struct llama_config: dim
 * layers heads kv_heads ffn vocab seq tied rope_theta norm_eps. Flat YAML:
 * comments and blank lines are allowed, nesting is not. kv_heads defaults to
 * heads, tied to true, rope_theta to 10000, norm_eps to 1e-5; the rest must be
 * there.
 *
 * How it fails: LOCO_ENOENT for a name that is neither a model nor a file,
 * LOCO_EINVAL with "FILE:LINE: ..." in errmsg (ERRMSG_SIZE bytes).
 */
#ifndef LOCO_DAEMON_SETTINGS_MODEL_FILE_H
#define LOCO_DAEMON_SETTINGS_MODEL_FILE_H

#include "proto/base/errmsg.h"
#include "train/model/llama_config.h"

int model_find(const char *name_or_path,
               struct llama_config *out,
               char errmsg[ERRMSG_SIZE]);

/* The text of a file; `where` stands in sentences. `text` is written to. */
int model_parse(char *text,
                const char *where,
                struct llama_config *out,
                char errmsg[ERRMSG_SIZE]);

#endif
