/* emu_stream.cpp - streams and events: what was queued runs as late as it may.
 *
 * A stream is a list of work. Nothing of it runs before somebody waits for an
 * event behind it or frees memory, and then only what that event needs: its
 * stream up to it, and of other streams what cudaStreamWaitEvent named. So
 * staging memory that is filled again too early, a copy that does not follow
 * the kernel it copies from, or memory read before its copy was waited for give
 * other bytes. emu_control.early runs everything at once instead, the other
 * end of what a GPU may do.
 *
 * The first question about an event whose work has not run is answered "not
 * ready", and cudaGetLastError() then says so, too: runtimes differ in that.
 */
#include <deque>
#include <memory>
#include <string.h>
#include <vector>

#include "tests/emu/emu_runtime.h"

struct task {
    enum { BODY, BETWEEN, RECORD, WAIT } kind;
    std::function<void()> body;
    struct emu_event *event;
    size_t turn; /* of the event */
};

struct emu_stream {
    std::deque<struct task> tasks;
    int device;
};

/* Each cudaEventRecord is a turn of its own: a wait means the last one before
 * it. Events are kept for good, work may still name them. */
struct turn {
    struct emu_stream *stream;
    bool done;
};
struct emu_event {
    std::vector<struct turn> turns;
    bool asked;
};

static std::vector<struct emu_stream *> &streams =
    *new std::vector<struct emu_stream *>;

static void run_to(struct emu_event *e, size_t turn);

static void run_one(struct emu_stream *s)
{
    struct task t = s->tasks.front();

    s->tasks.pop_front();
    switch (t.kind) {
    case task::BODY:
        emu_memory_open(s->device);
        t.body();
        emu_memory_close(s->device);
        break;
    case task::BETWEEN: /* two GPUs */
        emu_memory_open(EMU_ALL);
        t.body();
        emu_memory_close(EMU_ALL);
        break;
    case task::RECORD:
        t.event->turns[t.turn].done = true;
        break;
    case task::WAIT:
        run_to(t.event, t.turn);
        break;
    }
}

static bool stands(const struct emu_stream *s)
{
    return emu_is_broken(s->device) || emu_is_hanging(s->device);
}

static void run_to(struct emu_event *e, size_t turn)
{
    struct emu_stream *s = e->turns[turn].stream;

    emu_memory_open(s->device); /* once for all of it */
    while (!e->turns[turn].done && !s->tasks.empty() && !stands(s)) {
        run_one(s);
    }
    emu_memory_close(s->device);
}

/* Its context is gone, and what was queued with it. */
void emu_forget_queues(void)
{
    for (struct emu_stream *s : streams) {
        if (s->device == emu_device()) {
            s->tasks.clear();
        }
    }
}

/* For calls that wait for the whole device, and have no deadline. */
void emu_run_all(void)
{
    EMU_ENTER;

    for (struct emu_stream *s : streams) {
        if (s->device != emu_device()) {
            continue;
        }
        if (emu_hangs() && emu_sticky() == cudaSuccess && !s->tasks.empty()) {
            emu_give_up("a call waits for ever: the GPU does not answer");
        }
        while (!s->tasks.empty() && !stands(s)) {
            run_one(s);
        }
    }
}

static void add(struct emu_stream *s, const struct task &t)
{
    if (s->device != emu_device()) {
        emu_give_up("work for a stream of another GPU");
    }
    s->tasks.push_back(t);
    if (emu_control.early != 0) {
        while (!s->tasks.empty() && !stands(s)) {
            run_one(s);
        }
    }
}

void emu_queue(cudaStream_t stream, std::function<void()> body)
{
    add(stream, {task::BODY, body, NULL, 0});
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    EMU_ENTER;

    (void)flags;
    *stream = NULL;
    if (emu_sticky() != cudaSuccess) {
        return emu_sticky();
    }
    *stream = new emu_stream;
    (*stream)->device = emu_device();
    streams.push_back(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    EMU_ENTER;

    emu_run_all();
    for (size_t i = 0; i < streams.size(); i++) {
        if (streams[i] == stream) {
            streams.erase(streams.begin() + (std::ptrdiff_t)i);
            delete stream;
            return emu_sticky();
        }
    }
    emu_give_up("a stream was destroyed twice");
}

cudaError_t
cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    EMU_ENTER;

    (void)flags;
    if (emu_sticky() == cudaSuccess && !event->turns.empty()) {
        add(stream, {task::WAIT, NULL, event, event->turns.size() - 1});
    }
    return emu_sticky();
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    EMU_ENTER;

    return cudaEventCreateWithFlags(event, 0);
}

static std::vector<std::unique_ptr<struct emu_event>>
    events; /* till unloaded */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    EMU_ENTER;

    (void)flags;
    *event = new emu_event();
    events.emplace_back(*event);
    return emu_sticky();
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    EMU_ENTER;

    (void)event;
    return emu_sticky();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    EMU_ENTER;

    if (emu_sticky() == cudaSuccess) {
        event->turns.push_back({stream, false});
        event->asked = false;
        add(stream, {task::RECORD, NULL, event, event->turns.size() - 1});
    }
    return emu_sticky();
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    EMU_ENTER;

    size_t last = event->turns.size() - 1;

    if (emu_sticky() != cudaSuccess) {
        return emu_sticky();
    }
    if (event->turns.empty() || event->turns[last].done) {
        return cudaSuccess;
    }
    if (event->asked) {
        run_to(event, last);
    }
    event->asked = true;
    if (emu_sticky() != cudaSuccess) {
        return emu_sticky();
    }
    return event->turns[last].done ? cudaSuccess : emu_fail(cudaErrorNotReady);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    EMU_ENTER;

    (void)from;
    (void)to;
    *ms = 1;
    return emu_sticky();
}

static bool emu_is_host(const void *p, size_t bytes)
{
    return emu_is_pinned(p, bytes) || emu_is_registered(p, bytes);
}

/* Not the oldest of its GPU. */
static bool is_beside(cudaStream_t stream)
{
    for (const struct emu_stream *s : streams) {
        if (s->device == stream->device) {
            return s != stream;
        }
    }
    return false;
}

cudaError_t cudaMemcpyPeerAsync(void *to,
                                int to_device,
                                const void *from,
                                int from_device,
                                size_t bytes,
                                cudaStream_t stream)
{
    EMU_ENTER;

    if (emu_sticky() != cudaSuccess) {
        return emu_sticky();
    }
    if (!emu_is_of(to_device, to, bytes) ||
        !emu_is_of(from_device, from, bytes)) {
        emu_give_up("a copy between GPUs of memory that is not theirs");
    }
    emu_control.peer_bytes[to_device][from_device] += bytes;
    add(stream, {task::BETWEEN, [=] { memmove(to, from, bytes); }, NULL, 0});
    return cudaSuccess;
}

/* Every second pair can, so that both answers come. */
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    EMU_ENTER;

    *can = (device + peer) % 2;
    return emu_sticky();
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    EMU_ENTER;

    (void)flags;
    if (peer == emu_device() || peer >= emu_control.devices) {
        emu_give_up("access to a GPU that is not another one");
    }
    if (emu_control.no_peers != 0) {
        return emu_fail(cudaErrorTooManyPeers);
    }
    return emu_sticky();
}

cudaError_t cudaMemcpyAsync(void *to,
                            const void *from,
                            size_t bytes,
                            enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    EMU_ENTER;

    bool fine = kind == cudaMemcpyHostToDevice
                    ? emu_is_host(from, bytes) && emu_is_device(to, bytes)
                : kind == cudaMemcpyDeviceToHost
                    ? emu_is_device(from, bytes) && emu_is_host(to, bytes)
                    : emu_is_device(from, bytes) && emu_is_device(to, bytes);

    if (emu_sticky() != cudaSuccess) {
        return emu_sticky();
    }
    if (!fine) {
        emu_give_up("a copy of other memory than pinned and the device's");
    }
    if (is_beside(stream) && emu_due(&emu_control.fail_beside)) {
        emu_control.sticky = cudaErrorIllegalAddress;
        return emu_fail(cudaErrorIllegalAddress);
    }
    if (emu_is_registered(to, bytes) || emu_is_registered(from, bytes)) {
        emu_control.direct += bytes;
    }
    if (kind == cudaMemcpyDeviceToHost) {
        emu_control.down += bytes;
    }
    if (emu_is_registered(to, bytes)) {
        emu_queue(stream, [=] { emu_write_host(to, from, bytes); });
        return cudaSuccess;
    }
    emu_queue(stream, [=] { memmove(to, from, bytes); });
    return cudaSuccess;
}

cudaError_t
cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream)
{
    EMU_ENTER;

    if (emu_sticky() != cudaSuccess) {
        return emu_sticky();
    }
    if (!emu_is_device(p, bytes)) {
        emu_give_up("a memset of memory that is not the device's");
    }
    emu_queue(stream, [=] { memset(p, value, bytes); });
    return cudaSuccess;
}
