/* emu_runtime.h - what the files of the emulated CUDA runtime share.
 *
 *   emu_runtime.cpp  the GPU, its errors, what a test can do to it
 *   emu_memory.cpp   device and pinned memory, and who may touch it
 *   emu_stream.cpp   streams and events: what runs when
 */
#ifndef LOCO_TESTS_EMU_EMU_RUNTIME_H
#define LOCO_TESTS_EMU_EMU_RUNTIME_H

#include <functional>
#include <mutex>
#include <stddef.h>

#include "cuda_runtime_api.h"
#include "tests/emu/emu_control.h"

/* One thread at a time is in the emulator, whichever GPU it asks something of.
 * The first line of every call of CUDA. */
extern std::recursive_mutex &emu_mutex;
#define EMU_ENTER std::lock_guard<std::recursive_mutex> emu_guard(emu_mutex)

/* The GPU that this thread's calls are for; how much memory one has. */
int emu_device(void);
uint64_t emu_memory_of(int device);

/* Counts *n down to an event; true when it happens. Faults of another GPU are
 * not counted. */
bool emu_due(int64_t *n);

/* What cudaGetLastError() gives next. */
cudaError_t emu_fail(cudaError_t e);
cudaError_t emu_sticky(void);
bool emu_hangs(void);

/* The two of one GPU. */
bool emu_is_broken(int device);
bool emu_is_hanging(int device);

/* The program did what no GPU allows: a sentence, and the end. */
[[noreturn]] void emu_give_up(const char *why);

/* emu.cpp and emu_wgmma.cpp: the running thread's number in its block, its
 * block's shared memory; whether copies of any thread have come without
 * emu_fence_copies(), products of this one without a wait. */
#define EMU_THREADS_MAX 1024
int emu_thread(void);
size_t emu_shared_bytes(void);
bool emu_copies_unfenced(void);
bool emu_wgmma_open(void);

/* Of device memory: may this thread touch it? That of one GPU is opened for
 * what runs there, EMU_ALL for what runs between two; calls nest. */
#define EMU_ALL (-1)
void emu_memory_open(int device);
void emu_memory_close(int device);

/* Whether [p, p + bytes) lies in one piece of either kind. */
bool emu_is_device(const void *p, size_t bytes);
/* Whether it is one of that GPU's. */
bool emu_is_of(int device, const void *p, size_t bytes);
bool emu_is_pinned(const void *p, size_t bytes);
bool emu_is_registered(const void *p, size_t bytes);

/* The GPU writes to memory of the process that it was told of: the bytes, but
 * for pages that are not those any more. */
void emu_write_host(void *to, const void *from, size_t bytes);
/* Of this thread's GPU, whose context is gone. */
void emu_forget_registered(void);

/* `body` is the stream's next work. */
void emu_queue(cudaStream_t stream, std::function<void()> body);

/* Everything that was queued on this thread's GPU; it is lost with its context.
 */
void emu_forget_queues(void);
void emu_run_all(void);

#endif
