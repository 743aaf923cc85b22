// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
/*
 * The C interface where nothing can be attached: every call that can fail without a kernel, from several threads at once. Run under
 * valgrind and with the address sanitizer.
 */
#include <errno.h>
#include <pthread.h>
#include <siteseer.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "line %d: %s: errno %d: %s\n", __LINE__, #condition, errno, \
				siteseer_last_error());                                            \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static atomic_int messages;

static void print(enum siteseer_print_level level, const char *message, void *ctx)
{
	(void)level;
	CHECK(message && ctx == &messages);
	messages++;
}

static void *fail(void *argument)
{
	struct siteseer_source_opts short_opts = { .sz = 1 };
	struct {
		struct siteseer_source_opts known;
		uint64_t later;
	} long_opts = { { .sz = sizeof(long_opts) }, 1 };
	struct siteseer_counts counts = { .sz = sizeof(counts) };
	struct siteseer_site_info site = { .sz = sizeof(site) };
	struct siteseer_argument_info argument_info = { .sz = sizeof(argument_info) };
	struct siteseer_cost cost = { .sz = sizeof(cost) };
	char file[64];
	const char *said;
	int round;

	snprintf(file, sizeof(file), "/there/is/no/file/of/thread/%d", *(int *)argument);
	CHECK(!*siteseer_last_error());
	for (round = 0; round < 100; round++) {
		errno = 0;
		CHECK(!siteseer_target__image(file, NULL) && errno == ENOENT);
		said = siteseer_last_error();
		CHECK(strstr(said, file) && said == siteseer_last_error());
		CHECK(!siteseer_target__image("/etc/passwd", NULL) && strstr(siteseer_last_error(), "/etc/passwd"));
		CHECK(!siteseer_target__image(NULL, NULL) && errno == EINVAL);
		CHECK(!siteseer_target__image("\xff", NULL) && errno == EINVAL);
		CHECK(!siteseer_target__image(file, &short_opts) && errno == EINVAL);
		CHECK(!siteseer_target__image(file, &long_opts.known) && errno == E2BIG);
		CHECK(!siteseer_program__plan(NULL, NULL, NULL) && errno == EINVAL);
		CHECK(!siteseer_program__attach(NULL, NULL, NULL) && errno == EINVAL);
		CHECK(!siteseer_program__attach_link(NULL, NULL, NULL) && errno == EINVAL);
		CHECK(!siteseer_program__report(NULL) && errno == EINVAL);
		CHECK(siteseer_program__set_attach_opts(NULL, NULL) == -EINVAL);
		CHECK(!siteseer_link__of(NULL) && errno == EINVAL);
		CHECK(!siteseer_link__report(NULL) && errno == EINVAL);
		CHECK(!siteseer_link__is_attached(NULL));
		CHECK(siteseer_link__missed(NULL) == -EINVAL && siteseer_link__faults(NULL) == -EINVAL);
		CHECK(siteseer_link__cost(NULL, &cost) == -EINVAL);
		CHECK(siteseer_link__gone(NULL, NULL, NULL) == -EINVAL);
		CHECK(siteseer_link__unseen_modules(NULL, NULL, NULL) == -EINVAL);
		CHECK(siteseer_link__in_the_way(NULL, NULL, NULL) == -EINVAL);
		CHECK(siteseer_link__tail_slots(NULL, NULL, NULL) == -EINVAL);
		CHECK(siteseer_link__refresh(NULL, NULL, NULL, NULL) == -EINVAL);
		CHECK(siteseer_link__destroy(NULL) == 0);
		CHECK(!siteseer_report__text(NULL, 0) && siteseer_report__site_cnt(NULL) == 0);
		CHECK(siteseer_report__counts(NULL, &counts) == -EINVAL);
		CHECK(siteseer_report__site(NULL, 0, &site) == -EINVAL);
		CHECK(siteseer_report__argument(NULL, 0, 0, &argument_info) == -EINVAL);
		CHECK(!siteseer_target__sites(NULL, "vfs_read", 0) && errno == EINVAL);
		CHECK(!siteseer_target__describe(NULL));
		siteseer_report__free(NULL);
		siteseer_target__free(NULL);
		siteseer_set_print(print, &messages);
	}
	return NULL;
}

int main(void)
{
	struct siteseer_register_opts opts = { .sz = sizeof(opts), .policy = 9 };
	pthread_t threads[4];
	int numbers[4];
	int nth;

	CHECK(siteseer_version_string() && *siteseer_version_string());
	CHECK(siteseer_register(&opts) == -EINVAL);
	for (nth = 0; nth < 3; nth++) {
		CHECK(!siteseer_register(NULL) && !siteseer_register(NULL));
		CHECK(!siteseer_unregister() && !siteseer_unregister());
	}
	for (nth = 0; nth < 4; nth++) {
		numbers[nth] = nth;
		CHECK(!pthread_create(&threads[nth], NULL, fail, &numbers[nth]));
	}
	for (nth = 0; nth < 4; nth++)
		CHECK(!pthread_join(threads[nth], NULL));
	siteseer_set_print(NULL, NULL);
	printf("all as it should be\n");
	return 0;
}
