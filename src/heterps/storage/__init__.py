"""Files wherever they are: on a disk, in HDFS, in an object store.

```text
 urls         what a URL says: passwords, names that a client misreads
 patience     trying again, where servers go and come back
 waits        telling a person that they do not answer
 range_cache  parts of remote files on a local disk
 access       the file system of a URL, with its options
 publish      files that are at a URL whole or not at all
 places       folders by path or URL, alike
```
"""
