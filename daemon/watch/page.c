/* page.c - see watch/page.h. */
#include "daemon/watch/page.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/web/web.h"

WEB_BYTES_OF(machines);
WEB_BYTES_OF(machines_style);
WEB_BYTES_OF(machines_script);

struct page {
    struct web *web;
    pthread_mutex_t lock;
    char *json; /* NULL: nothing yet */
};

static const struct web_file files[] = {
    WEB_FILE("/", "text/html", machines),
    WEB_FILE("/machines.css", "text/css", machines_style),
    WEB_FILE("/machines.js", "text/javascript", machines_script),
    WEB_FILES_SHARED,
};

static enum MHD_Result on_ask(void *data,
                              struct MHD_Connection *connection,
                              const char *path,
                              const char *method)
{
    const struct web_file *file =
        web_file_find(files, sizeof files / sizeof files[0], path);
    struct page *p = data;
    char *json;

    if (file != NULL) {
        return web_answer_file(connection, file, method);
    }
    if (strcmp(path, "/api/v1/machines") != 0) {
        return web_answer_text(connection, MHD_HTTP_NOT_FOUND,
                               "no such path\n");
    }
    if (strcmp(method, "GET") != 0) {
        return web_answer_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
                               "wrong method for this path\n");
    }
    (void)pthread_mutex_lock(&p->lock);
    json = p->json == NULL ? NULL : strdup(p->json);
    (void)pthread_mutex_unlock(&p->lock);
    return web_answer_json(connection, json);
}

int page_open(struct page **page,
              const char *address,
              const char *password,
              char errmsg[ERRMSG_SIZE])
{
    const struct web_terms terms = {
        .name = "loco",
        .setting = "--listen",
        .advice = "loco page printed it where it was started",
        .anywhere = password != NULL,
        .always = password != NULL,
        .token = password,
    };
    struct page *p = calloc(1, sizeof *p);
    int rv;

    if (p == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "out of memory");
    }
    (void)pthread_mutex_init(&p->lock, NULL);
    rv = web_open(&p->web, address, &terms, on_ask, p, errmsg);
    if (rv != 0) {
        (void)pthread_mutex_destroy(&p->lock);
        free(p);
        return rv;
    }
    *page = p;
    return 0;
}

const char *page_address(const struct page *page)
{
    return web_address(page->web);
}

void page_publish(struct page *page, char *json)
{
    char *last;

    if (json == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&page->lock);
    last = page->json;
    page->json = json;
    (void)pthread_mutex_unlock(&page->lock);
    free(last);
}

void page_close(struct page *page)
{
    web_close(page->web);
    free(page->json);
    (void)pthread_mutex_destroy(&page->lock);
    free(page);
}
