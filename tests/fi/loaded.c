// SPDX-License-Identifier: Apache-2.0 OR MIT
// A program that is not linked to libfabric. It loads the library, opens an endpoint with automatic progress, sends
// itself a message, closes everything, unloads libfabric, forks, and repeats all this. Prints which of the libraries
// are still mapped.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                     \
  do {                                                       \
    if (!(condition)) {                                      \
      printf("%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                               \
    }                                                        \
  } while (0)

static int is_mapped(const char *library) {
  FILE *maps = fopen("/proc/self/maps", "r");
  CHECK(maps);
  char line[4096];
  int found = 0;
  while (fgets(line, sizeof line, maps)) found |= !!strstr(line, library);
  fclose(maps);
  return found;
}

static int entries(const char *path) {
  DIR *folder = opendir(path);
  CHECK(folder);
  int count = 0;
  while (readdir(folder)) count++;
  closedir(folder);
  return count;
}

static void *symbol(void *library, const char *name, const char *version) {
  void *found = dlvsym(library, name, version);
  CHECK(found);
  return found;
}

static void message_to_itself(void *library) {
  int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *, struct fi_info **);
  void (*freeinfo)(struct fi_info *);
  struct fi_info *(*dupinfo)(const struct fi_info *);
  int (*open_fabric)(struct fi_fabric_attr *, struct fid_fabric **, void *);
  *(void **)&getinfo = symbol(library, "fi_getinfo", "FABRIC_1.3");
  *(void **)&freeinfo = symbol(library, "fi_freeinfo", "FABRIC_1.3");
  *(void **)&dupinfo = symbol(library, "fi_dupinfo", "FABRIC_1.3");
  *(void **)&open_fabric = symbol(library, "fi_fabric", "FABRIC_1.1");

  struct fi_info *hints = dupinfo(NULL), *info;
  hints->caps = FI_TAGGED;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->data_progress = FI_PROGRESS_AUTO;
  hints->fabric_attr->prov_name = strdup("barewire");
  CHECK(!getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
  struct fid_fabric *fabric;
  struct fid_domain *domain;
  struct fid_av *av;
  struct fid_cq *cq;
  struct fid_ep *ep;
  struct fi_av_attr vectors = {.type = FI_AV_TABLE};
  struct fi_cq_attr queues = {.format = FI_CQ_FORMAT_TAGGED};
  CHECK(!open_fabric(info->fabric_attr, &fabric, NULL));
  CHECK(!fi_domain(fabric, info, &domain, NULL));
  CHECK(!fi_av_open(domain, &vectors, &av, NULL));
  CHECK(!fi_cq_open(domain, &queues, &cq, NULL));
  CHECK(!fi_endpoint(domain, info, &ep, NULL));
  CHECK(!fi_ep_bind(ep, &av->fid, 0));
  CHECK(!fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
  CHECK(!fi_enable(ep));
  // `.`, `..`, this thread and the progress thread.
  CHECK(entries("/proc/self/task") == 4);
  char name[64], in[8];
  size_t bytes = sizeof name;
  fi_addr_t itself;
  CHECK(!fi_getname(&ep->fid, name, &bytes));
  CHECK(fi_av_insert(av, name, 1, &itself, 0, NULL) == 1);
  CHECK(!fi_trecv(ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, 1, 0, in));
  CHECK(!fi_tsend(ep, "message", sizeof in, NULL, itself, 1, NULL));
  struct fi_cq_tagged_entry entry;
  time_t until = time(NULL) + 10;
  for (int completed = 0; completed < 2; completed += fi_cq_read(cq, &entry, 1) == 1) CHECK(time(NULL) < until);
  CHECK(!strcmp(in, "message"));
  CHECK(!fi_close(&ep->fid) && !fi_close(&cq->fid) && !fi_close(&av->fid));
  CHECK(!fi_close(&domain->fid) && !fi_close(&fabric->fid));
  freeinfo(info);
  freeinfo(hints);
}

int main(void) {
  int descriptors = 0;
  for (int round = 0; round < 4; round++) {
    void *library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK(library);
    message_to_itself(library);
    CHECK(is_mapped("libbarewire-fi.so"));
    CHECK(!dlclose(library));
    // The progress thread has ended.
    CHECK(entries("/proc/self/task") == 3);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    if (round == 0) descriptors = entries("/proc/self/fd");
    CHECK(entries("/proc/self/fd") == descriptors);
  }
  int libfabric = !!dlopen("libfabric.so.1", RTLD_NOW | RTLD_NOLOAD);
  CHECK(libfabric == is_mapped("libfabric.so"));
  printf("libfabric stays: %d\nprovider stays: %d\n", libfabric, is_mapped("libbarewire-fi.so"));
  return 0;
}
