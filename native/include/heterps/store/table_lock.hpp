// A lock for many readers or one writer, in which a waiting writer goes first.
#pragma once

#include <pthread.h>

namespace heterps::store {

// Usable with std::shared_lock and std::unique_lock. std::shared_mutex lets readers starve a
// writer with glibc: two threads that pull without pause would keep a push out for good.
class TableLock {
  public:
    TableLock() {
        pthread_rwlockattr_t attributes;
        pthread_rwlockattr_init(&attributes);
#if defined(__GLIBC__)
        pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
#endif
        pthread_rwlock_init(&lock_, &attributes);
        pthread_rwlockattr_destroy(&attributes);
    }
    ~TableLock() { pthread_rwlock_destroy(&lock_); }
    TableLock(const TableLock&) = delete;
    TableLock& operator=(const TableLock&) = delete;

    void lock() { pthread_rwlock_wrlock(&lock_); }
    void unlock() { pthread_rwlock_unlock(&lock_); }
    void lock_shared() { pthread_rwlock_rdlock(&lock_); }
    void unlock_shared() { pthread_rwlock_unlock(&lock_); }

  private:
    pthread_rwlock_t lock_;
};

}  // namespace heterps::store
