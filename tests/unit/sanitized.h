/* sanitized.h - how often a test repeats itself under a sanitizer.
 *
 * A sanitizer finds in a few turns what it can find, and each of them takes
 * ten times as long: loops over random cases, trials and steps are shorter
 * there. What is asserted of each turn stays the same, and the build without
 * a sanitizer makes all of them.
 */
#ifndef LOCO_TESTS_UNIT_SANITIZED_H
#define LOCO_TESTS_UNIT_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LOCO_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LOCO_SANITIZED 1
#endif
#endif

#ifdef LOCO_SANITIZED
#define TURNS(all, few) (few)
#else
#define TURNS(all, few) (all)
#endif

#endif
