/* A stand-in for libnvidia-ml.so.1: NVML's symbols, answering from a script instead of a GPU.
 *
 * The script is the text file that GPUTRACE_STANDIN_SCRIPT names; tests/standin/__init__.py documents its lines and
 * writes them. Time is the machine's, times `speed`, unless standin_set_time_ns() made it manual: then it stands still
 * but for calls that block, so that hours of a recording pass in a test at once.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7,
       DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15, UNKNOWN = 999 };
enum { MAX_GPUS = 16, ANY_GPU = -1 };
#define WINDOW_NS 20000000LL
#define FIELD_TX 197
#define FIELD_RX 198

typedef struct { int64_t ns; uint64_t rx, tx; } Point;
typedef struct {
  int64_t ns;
  double sm, dram;
  unsigned util, clock_mhz, memory_mib, power_mw, gen, width, replays, processes;
  unsigned long long reasons;
} State;
typedef struct {
  char name[96], uuid[96], bus[32];
  unsigned gen_max, width_max, clock_max;
  int bits;              /* of the counters; 0: not supported, -1: dead */
  int gpm, window, mig, virtualization;
  int64_t gpm_lag_ns;
  uint64_t rx_start, tx_start;
  Point *points; size_t n_points;
  State *states; size_t n_states;
} Gpu;
typedef struct { int64_t from, to; int gpu, code; char call[64]; int used; } Trouble;

static Gpu gpus[MAX_GPUS];
static unsigned n_gpus = 1;
static char driver_version[80] = "580.159.04";
static Trouble *troubles; static size_t n_troubles;
static double speed = 1.0;
static int64_t repeat_ns, manual_ns = -1, start_ns, init_ns;
static int64_t wall_start_us;
static int references, loaded;
static volatile uint64_t *live; /* rx and tx of each GPU, counted by another process */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int64_t clock_ns(clockid_t id) {
  struct timespec now;
  clock_gettime(id, &now);
  return (int64_t)now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* ---- time, as the script sees it: nanoseconds since the library was loaded ---- */

static int64_t now_ns(void) {
  if (manual_ns >= 0) return manual_ns;
  return (int64_t)((double)(clock_ns(CLOCK_MONOTONIC) - start_ns) * speed);
}

static int64_t stamp_us(void) {
  if (manual_ns >= 0) return wall_start_us + manual_ns / 1000;
  return clock_ns(CLOCK_REALTIME) / 1000;
}

static void pass(int64_t script_ns) {
  if (script_ns <= 0) return;
  if (manual_ns >= 0) {
    manual_ns += script_ns;
    return;
  }
  int64_t real = (int64_t)((double)script_ns / speed);
  struct timespec span = {real / 1000000000LL, real % 1000000000LL};
  nanosleep(&span, NULL);
}

void standin_set_time_ns(int64_t ns, int64_t unix_us_at_zero) {
  manual_ns = ns;
  wall_start_us = unix_us_at_zero;
}

int64_t standin_time_ns(void) { return now_ns(); }

/* ---- the script ---- */

static void fail(const char *what, const char *line) {
  fprintf(stderr, "stand-in NVML: %s: %s\n", what, line);
  exit(70);
}

static void *grown(void *array, size_t count, size_t size) {
  if (count & (count - 1)) return array; /* room doubles at powers of two */
  void *more = realloc(array, (count ? 2 * count : 1) * size);
  if (!more) fail("no memory", "");
  return more;
}

static Gpu *gpu_of(int index, const char *line) {
  if (index < 0 || index >= MAX_GPUS) fail("no such GPU", line);
  return &gpus[index];
}

static void read_line(char *line) {
  int g, at = 0, code;
  double t, until;
  char word[64] = "", rest[512] = "";
  uint64_t a, b;
  line[strcspn(line, "\r\n")] = 0;
  if (!*line || *line == '#') return;
  if (sscanf(line, "driver %79s", driver_version) == 1) return;
  if (sscanf(line, "live %511[^\n]", rest) == 1) {
    int file = open(rest, O_RDONLY);
    void *map = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(uint64_t) * 2 * MAX_GPUS, PROT_READ, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) fail("cannot map the totals", rest);
    close(file);
    live = map;
    return;
  }
  if (sscanf(line, "speed %lf", &speed) == 1) return;
  if (sscanf(line, "gpus %u", &n_gpus) == 1) { if (n_gpus > MAX_GPUS) fail("too many GPUs", line); return; }
  if (sscanf(line, "repeat %lf", &t) == 1) { repeat_ns = llround(t * 1e9); return; }
  if (sscanf(line, "name %d %95[^\n]", &g, rest) == 2) { strcpy(gpu_of(g, line)->name, rest); return; }
  if (sscanf(line, "link %d %n", &g, &at) == 1 && at) {
    Gpu *p = gpu_of(g, line);
    if (sscanf(line + at, "%u %u", &p->gen_max, &p->width_max) != 2) fail("link GPU GEN WIDTH", line);
    return;
  }
  if (sscanf(line, "counters %d %63s", &g, word) == 2) {
    gpu_of(g, line)->bits = !strcmp(word, "dead") ? -1 : !strcmp(word, "none") ? 0 : atoi(word);
    return;
  }
  if (sscanf(line, "start %d %" SCNu64 " %" SCNu64, &g, &a, &b) == 3) {
    gpu_of(g, line)->rx_start = a; gpu_of(g, line)->tx_start = b;
    return;
  }
  if (sscanf(line, "has %d %63s %d", &g, word, &code) == 3) {
    Gpu *p = gpu_of(g, line);
    if (!strcmp(word, "gpm")) p->gpm = code;
    else if (!strcmp(word, "window")) p->window = code;
    else if (!strcmp(word, "mig")) p->mig = code;
    else if (!strcmp(word, "virtualization")) p->virtualization = code;
    else if (!strcmp(word, "gpm_lag_ms")) p->gpm_lag_ns = code * 1000000LL;
    else fail("has GPU gpm|window|mig|virtualization|gpm_lag_ms NUMBER", line);
    return;
  }
  if (sscanf(line, "point %d %lf %" SCNu64 " %" SCNu64, &g, &t, &a, &b) == 4) {
    Gpu *p = gpu_of(g, line);
    p->points = grown(p->points, p->n_points, sizeof(Point));
    p->points[p->n_points++] = (Point){llround(t * 1e9), a, b};
    return;
  }
  State s = {0};
  if (sscanf(line, "state %d %lf %lf %lf %u %u %u %u %u %u %u %u %llu", &g, &t, &s.sm, &s.dram, &s.util, &s.clock_mhz,
             &s.memory_mib, &s.power_mw, &s.gen, &s.width, &s.replays, &s.processes, &s.reasons) == 13) {
    Gpu *p = gpu_of(g, line);
    s.ns = llround(t * 1e9);
    p->states = grown(p->states, p->n_states, sizeof(State));
    p->states[p->n_states++] = s;
    return;
  }
  if (sscanf(line, "fail %lf %lf %d %d %63s", &t, &until, &code, &g, word) == 5 ||
      (code = -1, sscanf(line, "block %lf %lf %d %63s", &t, &until, &g, word) == 4)) {
    troubles = grown(troubles, n_troubles, sizeof(Trouble));
    Trouble *p = &troubles[n_troubles++];
    *p = (Trouble){llround(t * 1e9), llround(until * 1e9), g, code, "", 0};
    strcpy(p->call, word);
    return;
  }
  fail("cannot read this line of the script", line);
}

static void load(void) {
  if (loaded) return;
  loaded = 1;
  for (int i = 0; i < MAX_GPUS; i++) {
    Gpu *g = &gpus[i];
    g->gen_max = 5; g->width_max = 16; g->clock_max = 1980; g->bits = 32; g->gpm = 1; g->window = 1;
    g->rx_start = 534200008; g->tx_start = 4054876540;
    snprintf(g->name, sizeof g->name, "NVIDIA Stand-in");
    snprintf(g->uuid, sizeof g->uuid, "GPU-57a4d000-0000-0000-0000-%012d", i);
    snprintf(g->bus, sizeof g->bus, "00000000:%02X:00.0", 0x10 + i);
  }
  const char *path = getenv("GPUTRACE_STANDIN_SCRIPT");
  if (!path) fail("GPUTRACE_STANDIN_SCRIPT names no script", "");
  FILE *file = fopen(path, "r");
  if (!file) fail("cannot open the script", path);
  char line[512];
  while (fgets(line, sizeof line, file)) read_line(line);
  fclose(file);
  start_ns = clock_ns(CLOCK_MONOTONIC);
}

/* ---- what passed, and what the GPU is like, at a time ---- */

static void passed(const Gpu *g, int64_t ns, uint64_t *rx, uint64_t *tx) {
  *rx = *tx = 0;
  if (live) {
    *rx = live[2 * (g - gpus)];
    *tx = live[2 * (g - gpus) + 1];
    return;
  }
  if (!g->n_points || ns < 0) return;
  const Point *last = &g->points[g->n_points - 1];
  uint64_t rounds = 0;
  if (repeat_ns) { rounds = (uint64_t)(ns / repeat_ns); ns %= repeat_ns; }
  size_t low = 0, high = g->n_points;
  while (low < high) { /* first point after ns */
    size_t middle = (low + high) / 2;
    if (g->points[middle].ns > ns) high = middle; else low = middle + 1;
  }
  const Point *before = low ? &g->points[low - 1] : NULL, *after = low < g->n_points ? &g->points[low] : NULL;
  if (before) { *rx = before->rx; *tx = before->tx; }
  if (before && after) {
    long double share = (long double)(ns - before->ns) / (long double)(after->ns - before->ns);
    *rx += (uint64_t)((long double)(after->rx - before->rx) * share);
    *tx += (uint64_t)((long double)(after->tx - before->tx) * share);
  }
  *rx += rounds * last->rx;
  *tx += rounds * last->tx;
}

static State state_at(const Gpu *g, int64_t ns) {
  static const State idle = {.clock_mhz = 1980, .memory_mib = 637, .power_mw = 80000, .gen = 5, .width = 16};
  State found = idle;
  if (repeat_ns) ns %= repeat_ns;
  size_t low = 0, high = g->n_states;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (g->states[middle].ns > ns) high = middle; else low = middle + 1;
  }
  if (low) found = g->states[low - 1];
  return found;
}

/* Busy seconds up to ns: GPM's activities are means, so they must add up over any interval. */
static void busy(const Gpu *g, int64_t from, int64_t to, double *sm, double *dram) {
  double sum_sm = 0, sum_dram = 0;
  const int pieces = 64;
  for (int i = 0; i < pieces; i++) {
    State s = state_at(g, from + (to - from) * (2 * i + 1) / (2 * pieces));
    sum_sm += s.sm; sum_dram += s.dram;
  }
  *sm = sum_sm / pieces; *dram = sum_dram / pieces;
}

/* ---- every call passes here ---- */

static int enter(const char *call, int gpu) {
  pthread_mutex_lock(&lock);
  load();
  int64_t now = now_ns(), blocked = 0;
  int code = strcmp(call, "nvmlInitWithFlags") && references == 0 ? UNINITIALIZED : SUCCESS;
  for (size_t i = 0; i < n_troubles; i++) {
    Trouble *t = &troubles[i];
    if (t->gpu != ANY_GPU && t->gpu != gpu) continue;
    if (strcmp(t->call, "*") && strcmp(t->call, call)) continue;
    if (t->code < 0) { /* block: the first call in the time blocks to its end */
      if (!t->used && now >= t->from) { t->used = 1; blocked = t->to - t->from; }
    } else if (now >= t->from && code == SUCCESS) {
      /* What is lost stays lost until the library is started again after it came back. */
      int sticky = (t->code == GPU_IS_LOST || t->code == UNINITIALIZED) && strcmp(call, "nvmlInitWithFlags");
      int64_t until = sticky && init_ns < t->to ? INT64_MAX : t->to;
      if (now < until) code = t->code;
    }
  }
  if (manual_ns >= 0) { pass(blocked); blocked = 0; }
  pthread_mutex_unlock(&lock);
  pass(blocked);
  return code;
}

#define ENTER(gpu) do { int code_ = enter(__func__, gpu); if (code_) return code_; } while (0)
#define DEVICE(device) ((int)((uintptr_t)(device) - 1))
#define OPEN(device) const int index = DEVICE(device); \
  if (index < 0 || index >= (int)n_gpus) return INVALID_ARGUMENT; \
  ENTER(index); \
  Gpu *const g = &gpus[index]; (void)g

typedef void *Device;

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  ENTER(ANY_GPU - 1);
  pthread_mutex_lock(&lock);
  if (!references++) init_ns = now_ns();
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
  pthread_mutex_lock(&lock);
  int code = references ? SUCCESS : UNINITIALIZED;
  if (references) references--;
  pthread_mutex_unlock(&lock);
  return code;
}

const char *nvmlErrorString(int code) {
  switch (code) {
    case SUCCESS: return "The operation was successful";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case GPU_IS_LOST: return "GPU is lost";
    default: return "Unknown Error";
  }
}

static int put(char *to, unsigned room, const char *text) {
  if (strlen(text) >= room) return INSUFFICIENT_SIZE;
  strcpy(to, text);
  return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *to, unsigned room) { ENTER(ANY_GPU - 1); return put(to, room, driver_version); }
int nvmlSystemGetNVMLVersion(char *to, unsigned room) { ENTER(ANY_GPU - 1); return put(to, room, "12.580.159.04"); }
int nvmlDeviceGetCount_v2(unsigned *count) { ENTER(ANY_GPU - 1); *count = n_gpus; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
  if (index >= n_gpus) return INVALID_ARGUMENT;
  ENTER((int)index);
  *device = (Device)(uintptr_t)(index + 1);
  return SUCCESS;
}

int nvmlDeviceGetName(Device device, char *to, unsigned room) { OPEN(device); return put(to, room, g->name); }
int nvmlDeviceGetUUID(Device device, char *to, unsigned room) { OPEN(device); return put(to, room, g->uuid); }

typedef struct {
  char bus_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
} PciInfo;

int nvmlDeviceGetPciInfo_v3(Device device, PciInfo *pci) {
  OPEN(device);
  memset(pci, 0, sizeof *pci);
  pci->bus = 0x10 + (unsigned)index;
  memcpy(pci->bus_legacy, g->bus + 4, 13);
  strcpy(pci->bus_id, g->bus);
  return SUCCESS;
}

int nvmlDeviceGetMigMode(Device device, unsigned *current, unsigned *pending) {
  OPEN(device);
  if (g->mig < 0) return NOT_SUPPORTED;
  *current = *pending = (unsigned)g->mig;
  return SUCCESS;
}

int nvmlDeviceGetVirtualizationMode(Device device, unsigned *mode) {
  OPEN(device);
  *mode = (unsigned)g->virtualization;
  return SUCCESS;
}

/* ---- readings ---- */

typedef union { double d; unsigned ui; unsigned long ul; unsigned long long ull; long long sll; } Value;
typedef struct {
  unsigned field, scope;
  long long timestamp, latency;
  int type, code;
  Value value;
} Field;

int nvmlDeviceGetFieldValues(Device device, int count, Field *fields) {
  OPEN(device);
  uint64_t rx, tx;
  passed(g, now_ns(), &rx, &tx);
  for (int i = 0; i < count; i++) {
    Field *f = &fields[i];
    f->timestamp = stamp_us();
    f->latency = 1;
    f->code = SUCCESS;
    memset(&f->value, 0, sizeof f->value);
    if ((f->field != FIELD_TX && f->field != FIELD_RX) || g->bits == 0) { f->code = NOT_SUPPORTED; continue; }
    f->type = g->bits == 64 ? 3 : 1;
    if (g->bits < 0) continue;
    uint64_t total = f->field == FIELD_RX ? g->rx_start + rx : g->tx_start + tx;
    if (g->bits == 64) f->value.ull = total; else f->value.ui = (unsigned)total;
  }
  return SUCCESS;
}

int nvmlDeviceGetPcieThroughput(Device device, int counter, unsigned *kb_per_s) {
  OPEN(device);
  if (!g->window) return NOT_SUPPORTED;
  uint64_t rx0, tx0, rx1, tx1;
  int64_t from = now_ns() - (manual_ns >= 0 ? WINDOW_NS : 0);
  passed(g, from, &rx0, &tx0);
  if (manual_ns < 0) pass(WINDOW_NS);
  passed(g, from + WINDOW_NS, &rx1, &tx1);
  *kb_per_s = (unsigned)((double)(counter ? rx1 - rx0 : tx1 - tx0) / (WINDOW_NS / 1e9) / 1e3);
  return SUCCESS;
}

typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned long long total, free, used; } Memory;

int nvmlDeviceGetUtilizationRates(Device device, Utilization *u) {
  OPEN(device);
  u->gpu = state_at(g, now_ns()).util; u->memory = 0;
  return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(Device device, Memory *m) {
  OPEN(device);
  m->total = 143771ULL << 20;
  m->used = (unsigned long long)state_at(g, now_ns()).memory_mib << 20;
  m->free = m->total - m->used;
  return SUCCESS;
}

#define NUMBER(symbol, member) \
  int symbol(Device device, unsigned *number) { OPEN(device); *number = state_at(g, now_ns()).member; return SUCCESS; }
NUMBER(nvmlDeviceGetPowerUsage, power_mw)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, gen)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, width)
NUMBER(nvmlDeviceGetPcieReplayCounter, replays)

int nvmlDeviceGetMaxPcieLinkGeneration(Device device, unsigned *n) { OPEN(device); *n = g->gen_max; return SUCCESS; }
int nvmlDeviceGetMaxPcieLinkWidth(Device device, unsigned *n) { OPEN(device); *n = g->width_max; return SUCCESS; }

int nvmlDeviceGetClockInfo(Device device, int type, unsigned *mhz) {
  OPEN(device); (void)type; *mhz = state_at(g, now_ns()).clock_mhz; return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(Device device, int type, unsigned *mhz) {
  OPEN(device); (void)type; *mhz = g->clock_max; return SUCCESS;
}

int nvmlDeviceGetCurrentClocksEventReasons(Device device, unsigned long long *reasons) {
  OPEN(device); *reasons = state_at(g, now_ns()).reasons; return SUCCESS;
}

typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } Process;

int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, Process *processes) {
  OPEN(device);
  unsigned room = *count, running = state_at(g, now_ns()).processes;
  *count = running;
  if (room < running) return INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < running; i++) processes[i] = (Process){1000 + i, 1ULL << 30, ~0u, ~0u};
  return SUCCESS;
}

/* ---- GPM ---- */

typedef struct { int64_t ns; int gpu; uint64_t rx, tx; } GpmSample;
typedef struct { const char *short_name, *long_name, *unit; } MetricInfo;
typedef struct { unsigned id; int code; double value; MetricInfo info; } Metric;
typedef struct { unsigned version, count; GpmSample *first, *second; Metric metrics[]; } MetricsGet;
typedef struct { unsigned version, supported; } GpmSupport;

int nvmlGpmQueryDeviceSupport(Device device, GpmSupport *support) {
  OPEN(device); support->supported = (unsigned)g->gpm; return SUCCESS;
}

int nvmlGpmSampleAlloc(GpmSample **sample) {
  ENTER(ANY_GPU - 1);
  *sample = calloc(1, sizeof **sample);
  return *sample ? SUCCESS : UNKNOWN;
}

int nvmlGpmSampleFree(GpmSample *sample) { free(sample); return SUCCESS; }

int nvmlGpmSampleGet(Device device, GpmSample *sample) {
  OPEN(device);
  if (!g->gpm) return NOT_SUPPORTED;
  sample->ns = now_ns() - g->gpm_lag_ns; sample->gpu = index;
  passed(g, sample->ns, &sample->rx, &sample->tx);
  return SUCCESS;
}

int nvmlGpmMetricsGet(MetricsGet *get) {
  ENTER(get->second->gpu);
  const Gpu *g = &gpus[get->second->gpu];
  int64_t from = get->first->ns, to = get->second->ns;
  double seconds = (double)(to - from) / 1e9, sm, dram;
  double rx = (double)(get->second->rx - get->first->rx), tx = (double)(get->second->tx - get->first->tx);
  if (seconds <= 0) return INVALID_ARGUMENT;
  busy(g, from, to, &sm, &dram);
  for (unsigned i = 0; i < get->count; i++) {
    Metric *m = &get->metrics[i];
    m->code = SUCCESS;
    switch (m->id) {
      case 2: m->value = sm * 100; break;
      case 10: m->value = dram * 100; break;
      case 20: m->value = tx / seconds / 1048576.0; break;
      case 21: m->value = rx / seconds / 1048576.0; break;
      default: m->code = NOT_SUPPORTED;
    }
  }
  return SUCCESS;
}
