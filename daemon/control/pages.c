/* pages.c - the dashboard's files, which are part of the program.
 *
 * daemon/control/dashboard/ and, where the build found Debian's libjs-chart.js,
 * the chart library (Chart.js, MIT licence): bytes that dashboard/files.c.in
 * puts into the program. A page of ours loads nothing from elsewhere, and its
 * Content-Security-Policy forbids it.
 */
#include "daemon/control/internal.h"

#include <string.h>

#define BYTES_OF(name)                                                         \
    extern const char dashboard_##name[];                                      \
    extern const char dashboard_##name##_end[];

BYTES_OF(page)
BYTES_OF(style)
BYTES_OF(script)
BYTES_OF(charts)

#define POLICY                                                                 \
    "default-src 'none'; script-src 'self'; style-src 'self'; "                \
    "connect-src 'self'; img-src data:; base-uri 'none'; "                     \
    "form-action 'none'; frame-ancestors 'none'"

static const struct file {
    const char *path, *type, *bytes, *end;
} files[] = {
    {"/", "text/html; charset=utf-8", dashboard_page, dashboard_page_end},
    {"/dashboard.css", "text/css; charset=utf-8", dashboard_style,
     dashboard_style_end},
    {"/dashboard.js", "text/javascript; charset=utf-8", dashboard_script,
     dashboard_script_end},
    {"/chart.js", "text/javascript; charset=utf-8", dashboard_charts,
     dashboard_charts_end},
};

static const struct file *file_find(const char *path)
{
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (strcmp(files[i].path, path) == 0) {
            return &files[i];
        }
    }
    return NULL;
}

bool control_is_file(const char *path)
{
    return file_find(path) != NULL;
}

enum MHD_Result control_get_file(struct MHD_Connection *connection,
                                 const char *path)
{
    const struct file *f = file_find(path);
    struct MHD_Response *r = control_response(
        f->type, f->bytes, (size_t)(f->end - f->bytes), MHD_RESPMEM_PERSISTENT);

    if (r != NULL) {
        (void)MHD_add_response_header(r, "Content-Security-Policy", POLICY);
        (void)MHD_add_response_header(r, "Referrer-Policy", "no-referrer");
    }
    return control_answer(connection, MHD_HTTP_OK, r);
}
