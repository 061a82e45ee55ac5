#pragma once

#include <stdexcept>

namespace heterps::store {

// The cold file or the disk under it failed; nothing that was acknowledged is lost.
class StoreError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

}  // namespace heterps::store
