/* qr.c - see control/qr.h. */
#include "daemon/control/qr.h"

#include <qrencode.h>

#define SIDE_MAX 177 /* of the largest version */

json_t *qr_rows(const char *text)
{
    QRcode *code = QRcode_encodeString8bit(text, 0, QR_ECLEVEL_L);
    json_t *rows = code == NULL ? NULL : json_array();
    char row[SIDE_MAX + 1];

    for (int y = 0; rows != NULL && y < code->width; y++) {
        for (int x = 0; x < code->width; x++) {
            row[x] = (code->data[y * code->width + x] & 1) != 0 ? '1' : '0';
        }
        row[code->width] = '\0';
        json_array_append_new(rows, json_string(row));
    }
    QRcode_free(code);
    return rows;
}
