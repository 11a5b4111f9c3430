// Two layers split over the ranks, y = relu(x up) down: each rank has some columns of `up` and the same rows of `down`, so
// that nothing is exchanged between the two products. Before and after them the rows of x and y are split.
#include "ranks.hpp"
#include <algorithm>
#include <cstddef>
#include <vector>

// Rows of x, and columns of `up`, that each rank has; columns of x and of y.
constexpr std::size_t ROWS = 4, COLUMNS = 8, INPUTS = 16, OUTPUTS = 16;

struct Matrix {
    std::size_t rows, columns;
    std::vector<float> data;

    Matrix(std::size_t rows, std::size_t columns) : rows(rows), columns(columns), data(rows * columns) {}

    // With content, the same on all ranks.
    Matrix(std::size_t rows, std::size_t columns, unsigned seed) : Matrix(rows, columns) {
        for (float &element : data) element = number(seed++);
    }

    float &at(std::size_t row, std::size_t column) { return data[row * columns + column]; }
    float at(std::size_t row, std::size_t column) const { return data[row * columns + column]; }

    Matrix part(std::size_t row, std::size_t height, std::size_t column, std::size_t width) const {
        Matrix part(height, width);
        for (std::size_t i = 0; i < height; i++) {
            for (std::size_t j = 0; j < width; j++) part.at(i, j) = at(row + i, column + j);
        }
        return part;
    }

    Matrix operator*(const Matrix &other) const {
        Matrix product(rows, other.columns);
        for (std::size_t i = 0; i < rows; i++) {
            for (std::size_t k = 0; k < columns; k++) {
                for (std::size_t j = 0; j < other.columns; j++) product.at(i, j) += at(i, k) * other.at(k, j);
            }
        }
        return product;
    }
};

static Matrix relu(Matrix matrix) {
    for (float &element : matrix.data) element = std::max(element, 0.0f);
    return matrix;
}

static float squared_error(const Matrix &one, const Matrix &other) {
    float error = 0;
    for (std::size_t i = 0; i < one.data.size(); i++) {
        error += (one.data[i] - other.data[i]) * (one.data[i] - other.data[i]);
    }
    return error;
}

static void layers(cclComm_t handle) {
    Communicator comm(handle);
    const auto rank = static_cast<std::size_t>(comm.rank()), ranks = static_cast<std::size_t>(comm.ranks());

    // The whole model, and this rank's parts of it.
    const Matrix x(ROWS * ranks, INPUTS, 0), up(INPUTS, COLUMNS * ranks, 10000), down(COLUMNS * ranks, OUTPUTS, 20000);
    const Matrix own_x = x.part(rank * ROWS, ROWS, 0, INPUTS), own_up = up.part(0, INPUTS, rank * COLUMNS, COLUMNS);
    const Matrix own_down = down.part(rank * COLUMNS, COLUMNS, 0, OUTPUTS);

    // All rows through this rank's part of the layers; what the ranks have then adds up to y, whose rows are split again.
    Matrix all_x(ROWS * ranks, INPUTS), own_y(ROWS, OUTPUTS);
    expect(cclAllGather(own_x.data.data(), all_x.data.data(), own_x.data.size(), cclFloat, comm, nullptr));
    Matrix y = relu(all_x * own_up) * own_down;
    expect(cclReduceScatter(y.data.data(), own_y.data.data(), own_y.data.size(), cclFloat, cclSum, comm, nullptr));
    // Where every rank goes on with all rows, it is an all-reduce instead.
    expect(cclAllReduce(y.data.data(), y.data.data(), y.data.size(), cclFloat, cclSum, comm, nullptr));

    const Matrix whole_y = relu(x * up) * down;
    float error = squared_error(y, whole_y) + squared_error(own_y, whole_y.part(rank * ROWS, ROWS, 0, OUTPUTS));
    expect(cclAllReduce(&error, &error, 1, cclFloat, cclMax, comm, nullptr));
    ensure(error < 1e-8f * static_cast<float>(ranks), "the product differs from the unsplit one");
    if (rank == 0) {
        std::printf("%zu ranks, %zu hidden columns: squared error to the unsplit layers %g\n", ranks, up.columns, error);
    }
}

int main() {
    return run_ranks(4, layers);
}
