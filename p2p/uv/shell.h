/* shell.h - what the files of p2p/uv share: the shell's own state.
 *
 * Internal to p2p/uv; the interface is loop.h. One struct, because a shell is
 * one thing; each part below names the file that writes it. A *note* is an
 * event that waits for the core: steps never nest, so what an action causes is
 * noted and stepped after the current `out` has been executed.
 *
 * shell_release() counts everything that must be gone before the shell's
 * memory may go: handles of its own, connections, listeners.
 */
#ifndef LOCO_P2P_UV_SHELL_H
#define LOCO_P2P_UV_SHELL_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "p2p/link/handshake.h"
#include "p2p/uv/barrier.h"
#include "p2p/uv/bulk.h"
#include "p2p/uv/conn.h"
#include "p2p/uv/link.h"
#include "p2p/uv/listen.h"
#include "p2p/uv/loop.h"
#include "p2p/uv/mailbox.h"
#include "p2p/uv/pace.h"
#include "p2p/uv/peer.h"
#include "p2p/uv/pipe.h"
#include "p2p/uv/probe.h"
#include "p2p/uv/punch.h"
#include "p2p/uv/room.h"
#include "p2p/uv/spare.h"
#include "p2p/uv/table.h"

struct note {
    struct event event;
    struct note *next;
};

struct shell {
    uv_loop_t *loop;
    uv_thread_t thread;
    struct core core;
    struct shell_options opt;
    struct shell_calls calls;
    struct shell_stats stats;
    unsigned n_refs;
    bool leaving; /* shell_close() was called: the core is stepped no more */
    bool closing; /* and nothing is on its way to the disk */
    shell_close_cb close_cb;
    void *close_data;
    struct mailbox mailbox; /* loop.c */
    /* turn.c */
    uv_timer_t timer;     /* the core's deadline */
    uv_prepare_t prepare; /* step notes before the loop sleeps ... */
    uv_check_t check;     /* ... and after it read its sockets */
    uv_idle_t idle;       /* runs while work was left for the next turn */
    struct note *notes, **notes_end;
    bool stepping;
    uint64_t armed_ms; /* what the timer waits for */
    struct out *out;
    struct barrier barrier; /* barrier.c */
    /* listen.c */
    struct listener listeners[SHELL_LISTEN_MAX];
    unsigned n_listeners;
    struct room room; /* room.c */
    uint16_t bound_port;
    uint16_t listen_port; /* told to peers */
    /* conn.c */
    uint8_t static_secret[NOISE_KEY_BYTES];
    struct conn *conns;
    uint64_t n_meetings; /* punch.c */
    /* link.c */
    struct link_table links;
    /* bulk.c */
    struct bulk_state bulk;
    /* pipe.c */
    struct pipe_state pipe;
    /* peer.c */
    struct peer *peers; /* uthash, oldest first */
    /* spare.c */
    struct spare_state spare;
    /* pace.c */
    struct pace pace;
};

/* Aborts with a message where memory ran out: small control-plane structs
 * only, whose number the options bound. */
void *shell_alloc(size_t bytes);

/* Queue an event for the core; taken. Ends with the next pump. */
void shell_note(struct shell *s, const struct event *event);
void shell_note_taken(struct shell *s, struct note *note);

/* Step the core now and execute what it says. Never from inside a step. */
void shell_step(struct shell *s, struct event *event);

/* Nothing is on its way to the disk any more. */
void shell_saved(struct shell *s);

/* The four handles of turn.c; each releases the shell when it is closed. */
void turn_init(struct shell *s);
void turn_close(struct shell *s);

void shell_add_conn(struct shell *s, struct conn *c);
void shell_remove_conn(struct shell *s, struct conn *c);
void shell_retain(struct shell *s);
void shell_release(struct shell *s);
/* What libuv calls for a handle whose data is a shell that it retains. */
void shell_handle_closed(uv_handle_t *handle);

/* For connections that are not owned by anybody (yet). */
extern const struct conn_ops conn_ops_none;
extern const struct conn_ops conn_ops_inbound;

#endif
