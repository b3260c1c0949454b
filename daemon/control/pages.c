/* pages.c - the dashboard's files, which are part of the program:
 * daemon/control/dashboard/, what all pages share, and, where the build found
 * Debian's libjs-chart.js, the chart library (Chart.js, MIT licence).
 */
#include "daemon/control/internal.h"

WEB_BYTES_OF(dashboard);
WEB_BYTES_OF(dashboard_style);
WEB_BYTES_OF(dashboard_script);
WEB_BYTES_OF(charts);

const struct web_file *control_file(const char *path)
{
    static const struct web_file files[] = {
        WEB_FILE("/", "text/html", dashboard),
        WEB_FILE("/dashboard.css", "text/css", dashboard_style),
        WEB_FILE("/dashboard.js", "text/javascript", dashboard_script),
        WEB_FILE("/chart.js", "text/javascript", charts),
        WEB_FILES_SHARED,
    };

    return web_file_find(files, sizeof files / sizeof files[0], path);
}
