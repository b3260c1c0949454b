/* lab_plot.c - curves as SVG: loss and held-out loss against tokens.
 *
 * One file without scripts or fonts of its own, readable in light and dark
 * viewers. The vertical scale covers what was measured; the first tenth of the
 * points is left out of it, or the fall from the untrained model would flatten
 * the rest.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/cli/lab_files.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"

#define WIDTH  760
#define HEIGHT 420
#define LEFT   64
#define TOP    40
#define RIGHT  16
#define BOTTOM 48
#define TICKS  5
#define LN_2   0.69314718055994531

struct scale {
    double x_most, y_least, y_most;
};

static double held_out(const struct lab_point *p)
{
    return p->bits_per_byte * LN_2;
}

static void widen(struct scale *s, double y)
{
    if (isfinite(y)) {
        s->y_least = y < s->y_least ? y : s->y_least;
        s->y_most = y > s->y_most ? y : s->y_most;
    }
}

static struct scale scale_of(const struct lab_result *r)
{
    struct scale s = {1.0, INFINITY, -INFINITY};

    for (size_t i = r->n_points / 10; i < r->n_points; i++) {
        widen(&s, r->points[i].loss);
        widen(&s, held_out(&r->points[i]));
        s.x_most = (double)r->points[i].tokens;
    }
    if (!(s.y_most > s.y_least)) {
        s.y_least = isfinite(s.y_least) ? s.y_least - 0.5 : 0.0;
        s.y_most = s.y_least + 1.0;
    }
    return s;
}

static double x_of(const struct scale *s, double tokens)
{
    return LEFT + tokens / s->x_most * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct scale *s, double y)
{
    double share = (y - s->y_least) / (s->y_most - s->y_least);

    share = share > 1.0 ? 1.0 : share;
    return TOP + (1.0 - share) * (HEIGHT - TOP - BOTTOM);
}

static void axes(FILE *f, const struct scale *s)
{
    for (int i = 0; i <= TICKS; i++) {
        double share = (double)i / TICKS;
        double y = s->y_least + share * (s->y_most - s->y_least);
        double x = share * s->x_most;

        (void)fprintf(f,
                      "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" "
                      "stroke=\"#8884\"/>\n"
                      "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.3f"
                      "</text>\n",
                      LEFT, WIDTH - RIGHT, y_of(s, y), y_of(s, y), LEFT - 6,
                      y_of(s, y) + 4, y);
        (void)fprintf(f,
                      "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.3gM"
                      "</text>\n",
                      x_of(s, x), HEIGHT - BOTTOM + 18, x / 1e6);
    }
    (void)fprintf(
        f,
        "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">tokens of all "
        "peers</text>\n",
        (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10);
}

static void curve(FILE *f,
                  const struct scale *s,
                  const struct lab_result *r,
                  double (*value)(const struct lab_point *),
                  const char *colour)
{
    (void)fprintf(f,
                  "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"%s\" "
                  "points=\"",
                  colour);
    for (size_t i = 0; i < r->n_points; i++) {
        double y = value(&r->points[i]);

        if (isfinite(y)) {
            (void)fprintf(f, "%.1f,%.1f ", x_of(s, (double)r->points[i].tokens),
                          y_of(s, y));
        }
    }
    (void)fprintf(f, "\"/>\n");
}

static double loss_of(const struct lab_point *p)
{
    return p->loss;
}

int lab_plot_write(const char *path,
                   const char *title,
                   const struct lab_result *r,
                   char *errmsg)
{
    const struct scale s = scale_of(r);
    FILE *f = fopen(path, "w");
    int bad;

    if (f == NULL) {
        return errmsg_fail(errmsg, LOCO_EIO, "%s: %s", path, strerror(errno));
    }
    (void)fprintf(f,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d "
                  "%d\" font-family=\"sans-serif\" font-size=\"12\" "
                  "fill=\"#808080\">\n<title>%s: loss against tokens</title>\n"
                  "<text x=\"%d\" y=\"22\" font-size=\"15\">%s: loss in nats "
                  "per token</text>\n"
                  "<text x=\"%d\" y=\"22\" fill=\"#3b82f6\">training</text>\n"
                  "<text x=\"%d\" y=\"22\" fill=\"#f97316\">held out</text>\n",
                  WIDTH, HEIGHT, title, LEFT, title, WIDTH - 150, WIDTH - 80);
    axes(f, &s);
    curve(f, &s, r, loss_of, "#3b82f6");
    curve(f, &s, r, held_out, "#f97316");
    (void)fprintf(f, "</svg>\n");
    bad = ferror(f);
    bad |= fclose(f);
    return bad == 0
               ? 0
               : errmsg_fail(errmsg, LOCO_EIO, "%s: %s", path, strerror(errno));
}
