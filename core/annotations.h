// Clang thread-safety annotations: which lock guards what, checked by `-Wthread-safety`; empty for
// other compilers. Source: clang.llvm.org/docs/ThreadSafetyAnalysis.html
#pragma once

#if defined(__clang__)
#define VIREO_THREAD_ATTR(x) __attribute__((x))
#else
#define VIREO_THREAD_ATTR(x)
#endif

#define VIREO_CAPABILITY(name) VIREO_THREAD_ATTR(capability(name))  ///< class: a lock
#define VIREO_SCOPED_CAPABILITY \
  VIREO_THREAD_ATTR(scoped_lockable)  ///< class: holds a lock while it lives
#define VIREO_GUARDED_BY(x) VIREO_THREAD_ATTR(guarded_by(x))  ///< member: access with x held
#define VIREO_REQUIRES(...) VIREO_THREAD_ATTR(requires_capability(__VA_ARGS__))
#define VIREO_ACQUIRE(...) VIREO_THREAD_ATTR(acquire_capability(__VA_ARGS__))
#define VIREO_TRY_ACQUIRE(...) VIREO_THREAD_ATTR(try_acquire_capability(__VA_ARGS__))
#define VIREO_RELEASE(...) VIREO_THREAD_ATTR(release_capability(__VA_ARGS__))
#define VIREO_RETURN_CAPABILITY(x) VIREO_THREAD_ATTR(lock_returned(x))
#define VIREO_NO_THREAD_ANALYSIS VIREO_THREAD_ATTR(no_thread_safety_analysis)
