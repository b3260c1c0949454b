/* page.h - the page for several machines, over HTTP.
 *
 *   GET /                  the page (page/)
 *   GET /api/v1/machines   what was published last (watch_json())
 *
 * Nothing else, and nothing that changes anything: no request is passed on to a
 * daemon. The browser asks this server only; the tokens of daemons stay in the
 * process. Who may ask is as with a daemon's own page (web/web.h): every
 * account of this machine at a loopback address; with a `password`, and always
 * at an address that other machines reach, only who shows it.
 */
#ifndef LOCO_DAEMON_WATCH_PAGE_H
#define LOCO_DAEMON_WATCH_PAGE_H

#include "proto/base/errmsg.h"

struct page;

/* `password` NULL: none is asked for, and only a loopback address is allowed.
 * Codes as web_open(). */
int page_open(struct page **page,
              const char *address,
              const char *password,
              char errmsg[ERRMSG_SIZE]);

/* "127.0.0.1:41234", as bound. */
const char *page_address(const struct page *page);

/* JSON from malloc, taken; NULL: the last one stays. Any thread. */
void page_publish(struct page *page, char *json);

void page_close(struct page *page);

#endif
