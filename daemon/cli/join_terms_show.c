/* join_terms_show.c - what joining a run takes, for a person; see join_terms.h.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/cli/answer.h"
#include "daemon/cli/join_terms_internal.h"
#include "daemon/cli/run_show.h"

static void print_check(const struct terms *t, enum doctor_check check)
{
    const struct doctor_line *l = &t->line_of[check];

    (void)printf("%-10s %s\n", doctor_check_name(check), l->what);
    if (l->fix[0] != '\0') {
        (void)printf("%-10s -> %s\n", "", l->fix);
    }
}

/* What the author thinks that it takes binds nobody, and is worth knowing. */
static void print_stated(uint64_t stated, uint64_t need)
{
    char text[24];

    if (stated > need) {
        (void)printf("%-10s -> the author of the run says that it takes %s\n",
                     "", answer_scaled((double)stated, "B", text));
    }
}

static void print_cap(uint64_t bytes_per_s, double open, const char *way)
{
    char day[24];

    if (bytes_per_s > 0) {
        (void)printf(
            ", at most %s %s by your cap",
            answer_scaled((double)bytes_per_s * open * JOIN_DAY_S, "B", day),
            way);
    }
}

static void print_traffic(const struct terms *t)
{
    const struct manifest *m = &t->run.manifest;
    const struct config *c = &t->config;
    char first[24], day[24], round[24];

    /* Other stages send more than the one that is counted. */
    (void)printf("traffic    %s %s a day each way",
                 m->stages > 1 ? "at least" : "about",
                 answer_scaled((double)t->day_bytes, "B", day));
    print_cap(c->upload_bytes_per_s, t->open, "sent");
    print_cap(c->download_bytes_per_s, t->open, "received");
    if (c->quota > 0) {
        (void)printf(", at most %llu GB a month by your quota",
                     (unsigned long long)c->quota);
    }
    (void)printf(
        "; %s once, at first\n",
        answer_scaled((double)(t->needs.data_bytes + t->needs.state_bytes), "B",
                      first));
    (void)printf("           (estimate: %s each way every %.*f s, in %u steps "
                 "of %.3g s as two processor cores\n"
                 "           make them and an exchange at %.3g Mbit/s; members "
                 "twice as fast send twice as much)\n",
                 answer_scaled((double)t->needs.round_bytes, "B", round),
                 t->round_s < 10 ? 2 : 0, t->round_s, m->sync.period, t->step_s,
                 t->line * 8 / 1e6);
    if (m->limits.traffic_bytes_per_day > 0) {
        (void)printf(
            "           %s a day, says the author of the run\n",
            answer_scaled((double)m->limits.traffic_bytes_per_day, "B", day));
    }
}

static void print_hours(const struct config *c)
{
    bool always = c->schedule[0] == '\0' || strcmp(c->schedule, "always") == 0;

    (void)printf("hours      %.200s%s, %llu %% of %llu thread%s%s", c->schedule,
                 always ? "" : " (local time)",
                 (unsigned long long)c->cpu_percent,
                 (unsigned long long)c->threads, c->threads == 1 ? "" : "s",
                 strcmp(c->battery, "pause") == 0 ? ", not on battery" : "");
    if (c->idle_minutes > 0) {
        (void)printf(", not until %llu min after somebody used this machine",
                     (unsigned long long)c->idle_minutes);
    }
    (void)putchar('\n');
}

void join_terms_print(const struct terms *t)
{
    run_show_text(&t->run);
    (void)printf("\nWhat it takes of this machine:\n");
    print_check(t, DOCTOR_CHECK_disk);
    print_stated(t->run.manifest.limits.disk_bytes, t->needs.disk_bytes);
    print_check(t, DOCTOR_CHECK_memory);
    print_stated(t->run.manifest.limits.memory_bytes, t->needs.memory_bytes);
    if (t->options.wants_cuda) {
        print_check(t, DOCTOR_CHECK_driver);
    }
    print_traffic(t);
    print_hours(&t->config);
    (void)printf("state      %s\n"
                 "limits     loco config set schedule, cpu_percent, "
                 "upload_bytes_per_s, quota, disk_bytes, memory_bytes\n\n",
                 t->state);
}
