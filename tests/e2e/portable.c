/* portable.c - the codec of plain C: locod_portable is locod with this.
 *
 * A daemon takes the fastest set of its processor (train/sync/codec/codec.c).
 * The linker puts this before codec_get() (-Wl,--wrap), so that daemons on one
 * machine make the sums of a round with different sets, as machines of
 * different kinds do. LOCO_REFERENCE_KERNELS does not do that: it chooses the
 * kernels of the model.
 */
#include "train/sync/codec/codec.h"

const struct codec *__wrap_codec_get(unsigned id);

const struct codec *__wrap_codec_get(unsigned id)
{
    return codec_get_portable(id);
}
