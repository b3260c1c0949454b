/* local.c - probes of this machine itself, see doctor/probe.h. */
#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#include <curl/curl.h>

#include "daemon/doctor/probe.h"
#include "daemon/visit/curl_old.h"
#include "p2p/uv/addr.h"
#include "proto/base/clock.h"

#define PCI_NVIDIA 0x10de
#define PCI_AMD    0x1002
/* a.root-servers.net: only looked up in the routing table, never sent to. */
#define WORLD_V4 "198.41.0.4"
#define WORLD_V6 "2001:503:ba3e::2:30"

/* First line of a small file; false where there is none. */
static bool read_line(const char *path, char *out, size_t size)
{
    FILE *f = fopen(path, "r");
    bool ok = f != NULL && fgets(out, (int)size, f) != NULL;

    if (f != NULL) {
        (void)fclose(f);
    }
    if (ok) {
        out[strcspn(out, "\r\n")] = '\0';
    }
    return ok;
}

/* ---- driver ----------------------------------------------------------- */

static void count_pci(struct fact_driver *d)
{
    static const char root[] = "/sys/bus/pci/devices";
    DIR *dir = opendir(root);
    struct dirent *e;
    char path[512], text[32];
    unsigned long kind, vendor;

    while (dir != NULL && (e = readdir(dir)) != NULL) {
        (void)snprintf(path, sizeof path, "%s/%s/class", root, e->d_name);
        if (!read_line(path, text, sizeof text)) {
            continue;
        }
        kind = strtoul(text, NULL, 16) >> 8;
        (void)snprintf(path, sizeof path, "%s/%s/vendor", root, e->d_name);
        if ((kind != 0x0300 && kind != 0x0302) ||
            !read_line(path, text, sizeof text)) {
            continue; /* neither a VGA nor a 3D controller */
        }
        vendor = strtoul(text, NULL, 16);
        d->n_nvidia += vendor == PCI_NVIDIA;
        d->n_amd += vendor == PCI_AMD;
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
}

/* The driver API, as far as it is needed here; by name, no header of CUDA. */
struct cuda {
    int (*init)(unsigned flags);
    int (*driver_get_version)(int *version);
    int (*get_count)(int *n);
    int (*get)(int *device, int ordinal);
    int (*get_name)(char *name, int len, int device);
    int (*total_mem)(size_t *bytes, int device);
};

static bool cuda_open(struct cuda *c, void *library)
{
    /* POSIX: an object pointer of dlsym holds a function's address. */
    *(void **)&c->init = dlsym(library, "cuInit");
    *(void **)&c->driver_get_version = dlsym(library, "cuDriverGetVersion");
    *(void **)&c->get_count = dlsym(library, "cuDeviceGetCount");
    *(void **)&c->get = dlsym(library, "cuDeviceGet");
    *(void **)&c->get_name = dlsym(library, "cuDeviceGetName");
    *(void **)&c->total_mem = dlsym(library, "cuDeviceTotalMem_v2");
    return c->init != NULL && c->driver_get_version != NULL &&
           c->get_count != NULL && c->get != NULL && c->get_name != NULL &&
           c->total_mem != NULL;
}

void probe_driver(const struct doctor_options *opt, void *fact)
{
    struct fact_driver *d = fact;
    struct cuda c;
    void *library;
    size_t bytes = 0;
    int n = 0, device;

    d->wanted = opt->wants_cuda;
    d->built = LOCO_HAS_CUDA; /* this build made the plug-in */
    count_pci(d);
    d->module = access("/proc/driver/nvidia/version", R_OK) == 0 ||
                access("/dev/nvidiactl", F_OK) == 0;
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    d->library = library != NULL;
    if (library == NULL || !cuda_open(&c, library)) {
        return;
    }
    d->cuda_rc = c.init(0);
    if (d->cuda_rc == 0 && c.get_count(&n) == 0 && n > 0 &&
        c.get(&device, 0) == 0) {
        d->n_devices = (uint32_t)n;
        (void)c.get_name(d->name, sizeof d->name, device);
        (void)c.total_mem(&bytes, device);
        (void)c.driver_get_version(&d->cuda_version);
        d->bytes = bytes;
    }
    /* The library stays open: unloading a driver is asking for trouble. */
}

/* ---- memory ----------------------------------------------------------- */

/* "Name:   123 kB" of /proc/meminfo, in bytes. */
static uint64_t meminfo(const char *name)
{
    FILE *f = fopen("/proc/meminfo", "r");
    char line[160];
    uint64_t bytes = 0;
    size_t len = strlen(name);

    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, name, len) == 0 && line[len] == ':') {
            bytes = strtoull(line + len + 1, NULL, 10) * 1024U;
            break;
        }
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return bytes;
}

/* What the memory limits of our cgroup (version 2) and its parents leave. */
static uint64_t cgroup_left(void)
{
    char line[512], path[700], text[64];
    uint64_t least = 0;
    char *slash;

    if (!read_line("/proc/self/cgroup", line, sizeof line) ||
        strncmp(line, "0::", 3) != 0) {
        return 0;
    }
    for (slash = line + strlen(line); slash != NULL;
         slash = strrchr(line + 3, '/')) {
        uint64_t max, used = 0;

        *slash = '\0';
        (void)snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max",
                       line + 3);
        if (!read_line(path, text, sizeof text) ||
            !isdigit((unsigned char)text[0])) {
            continue; /* "max", or no such file at the root */
        }
        max = strtoull(text, NULL, 10);
        (void)snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.current",
                       line + 3);
        if (read_line(path, text, sizeof text)) {
            used = strtoull(text, NULL, 10);
        }
        max = max > used ? max - used : 1;
        least = least == 0 || max < least ? max : least;
    }
    return least;
}

void probe_memory(const struct doctor_options *opt, void *fact)
{
    struct fact_memory *m = fact;

    (void)opt;
    m->total_bytes = meminfo("MemTotal");
    m->available_bytes = meminfo("MemAvailable");
    m->limit_bytes = cgroup_left();
}

/* ---- disk ------------------------------------------------------------- */

/* Bytes of the files in one directory and those below it, `depth` levels. */
static uint64_t used_below(const char *path, int depth)
{
    DIR *dir = opendir(path);
    struct dirent *e;
    uint64_t bytes = 0;

    while (dir != NULL && (e = readdir(dir)) != NULL) {
        char below[2 * DOCTOR_PATH_MAX + 512];
        struct stat st;

        if (e->d_name[0] == '.') {
            continue;
        }
        if (snprintf(below, sizeof below, "%s/%s", path, e->d_name) >=
                (int)sizeof below ||
            lstat(below, &st) != 0) {
            continue;
        }
        if (S_ISDIR(st.st_mode) && depth > 0) {
            bytes += used_below(below, depth - 1);
        } else if (S_ISREG(st.st_mode)) {
            bytes += (uint64_t)st.st_size;
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return bytes;
}

/* Make, write, sync and remove one file: 0 or errno. */
static int try_write(const char *dir)
{
    static const char bytes[4096] = "loco doctor was here";
    char path[DOCTOR_PATH_MAX + 32];
    int fd, rv = 0;

    (void)snprintf(path, sizeof path, "%s/.doctor-XXXXXX", dir);
    fd = mkstemp(path);
    if (fd < 0) {
        return errno;
    }
    if (write(fd, bytes, sizeof bytes) != (ssize_t)sizeof bytes ||
        fsync(fd) != 0) {
        rv = errno != 0 ? errno : ENOSPC;
    }
    (void)close(fd);
    (void)unlink(path);
    return rv;
}

void probe_disk(const struct doctor_options *opt, void *fact)
{
    struct fact_disk *d = fact;
    char path[DOCTOR_PATH_MAX];
    struct statvfs vfs;
    struct stat st;

    (void)snprintf(d->path, sizeof d->path, "%s", opt->state);
    (void)snprintf(path, sizeof path, "%s", opt->state);
    d->exists = stat(path, &st) == 0;
    while (stat(path, &st) != 0) { /* its nearest parent that is there */
        char *slash = strrchr(path, '/');

        if (slash == NULL || slash == path) {
            (void)snprintf(path, sizeof path, slash == NULL ? "." : "/");
            break;
        }
        *slash = '\0';
    }
    errno = 0;
    if (statvfs(path, &vfs) != 0) {
        d->rc = errno;
        return;
    }
    d->free_bytes = (uint64_t)vfs.f_bavail * vfs.f_frsize;
    /* Some file systems make inodes as they go and count none. */
    d->free_files = vfs.f_files == 0 ? UINT64_MAX : vfs.f_favail;
    d->read_only = (vfs.f_flag & ST_RDONLY) != 0;
    d->used_bytes = d->exists ? used_below(path, 3) : 0;
    d->rc = d->read_only ? EROFS : try_write(path);
}

/* ---- clock ------------------------------------------------------------ */

struct date {
    time_t at;
};

static size_t on_header(char *bytes, size_t size, size_t n, void *data)
{
    static const char name[] = "date:";
    struct date *d = data;
    char text[128];
    size_t len = size * n;

    if (len > sizeof name && len < sizeof text &&
        strncasecmp(bytes, name, sizeof name - 1) == 0) {
        memcpy(text, bytes, len);
        text[len] = '\0';
        d->at = curl_getdate(text + sizeof name - 1, NULL);
    }
    return len;
}

/* An HTTP server's Date is in whole seconds: half of one is added, and the
 * middle of the exchange is compared. */
static void ask_date(const char *url, uint32_t limit_ms, struct fact_clock *c)
{
    CURL *curl = curl_easy_init();
    struct date date = {-1};
    int64_t began_ms = wall_ms(), middle_ms;
    CURLcode rc = CURLE_FAILED_INIT;

    c->has_source = true;
    (void)snprintf(c->source, sizeof c->source, "%s", url);
    if (curl != NULL) {
        (void)curl_easy_setopt(curl, CURLOPT_URL, url);
        curl_allow(curl, "http,https");
        (void)curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
        (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
        (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS,
                               (long)(limit_ms - limit_ms / 8));
        (void)curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
        (void)curl_easy_setopt(curl, CURLOPT_HEADERDATA, &date);
        rc = curl_easy_perform(curl);
        curl_easy_cleanup(curl);
    }
    middle_ms = (began_ms + wall_ms()) / 2;
    c->source_rc = (int)rc;
    (void)snprintf(c->source_error, sizeof c->source_error, "%s",
                   curl_easy_strerror(rc));
    if (rc == CURLE_OK && date.at < 0) {
        c->source_rc = -1;
        (void)snprintf(c->source_error, sizeof c->source_error,
                       "its answer has no Date");
    }
    c->skew_s = (middle_ms - 500) / 1000 - (int64_t)date.at;
}

void probe_clock(const struct doctor_options *opt, void *fact)
{
    struct fact_clock *c = fact;
    struct timex t = {.modes = 0}; /* only reads */
    int state = adjtimex(&t);

    c->now_s = wall_ms() / 1000;
    c->ntp_known = state >= 0;
    c->ntp_synced =
        state >= 0 && state != TIME_ERROR && (t.status & STA_UNSYNC) == 0;
    c->ntp_error_ms = (uint32_t)(t.maxerror / 1000);
    if (opt->clock_url != NULL) {
        ask_date(opt->clock_url, opt->limit_ms, c);
    }
}

/* ---- addresses -------------------------------------------------------- */

/* Whether there is a route to `world`, and the address that it starts from.
 * Connecting a datagram socket looks the route up and sends nothing. */
static bool route_to(const char *world, struct address *from)
{
    struct sockaddr_storage sa;
    struct address to;
    socklen_t len;
    bool ok = false;
    int fd;

    if (address_parse(world, 9, &to) != 0) {
        return false;
    }
    len = address_to_sockaddr(&to, &sa);
    fd = socket(sa.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    if (connect(fd, (const struct sockaddr *)&sa, len) == 0) {
        len = sizeof sa;
        ok = getsockname(fd, (struct sockaddr *)&sa, &len) == 0 &&
             address_from_sockaddr((const struct sockaddr *)&sa, from) == 0;
    }
    (void)close(fd);
    return ok;
}

void probe_ip(const struct doctor_options *opt, void *fact)
{
    struct fact_ip *ip = fact;
    struct ifaddrs *list = NULL;

    (void)opt;
    ip->v4_route = route_to(WORLD_V4, &ip->v4);
    ip->v6_route = route_to(WORLD_V6, &ip->v6);
    if (getifaddrs(&list) != 0) {
        return;
    }
    for (const struct ifaddrs *i = list; i != NULL; i = i->ifa_next) {
        struct address a;

        if (i->ifa_addr == NULL || i->ifa_addr->sa_family != AF_INET6 ||
            address_from_sockaddr(i->ifa_addr, &a) != 0) {
            continue;
        }
        ip->v6_address = ip->v6_address || (a.ip[0] & 0xe0) == 0x20;
    }
    freeifaddrs(list);
}
