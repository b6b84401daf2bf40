// FASTACT_API marks what libfastact.so exports.
#pragma once

#define FASTACT_API __attribute__((visibility("default")))
