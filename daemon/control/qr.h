/* qr.h - a text as a QR code, which a phone's camera reads.
 *
 * libqrencode's, at the lowest level of error correction: screens have no
 * scratches, and the picture is smaller. Allocates; NULL: the text is too long
 * (more than about 2900 bytes), or memory is out.
 */
#ifndef LOCO_DAEMON_CONTROL_QR_H
#define LOCO_DAEMON_CONTROL_QR_H

#include <jansson.h>

/* A row each, of '1' for dark and '0' for light. Around them readers want four
 * light modules, the quiet zone, which is not in it. */
json_t *qr_rows(const char *text);

#endif
