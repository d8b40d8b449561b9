"""Tests of what reads machine code, on listings of a few lines. usage: machine_code_test.py"""
import tempfile
import unittest

import machine_code
import names
import sass


def listing(*lines, name="k"):
    """The lines as nvdisasm prints them: labels end in a colon, the rest are instructions."""
    text, address = [f"\t.section\t.text.{name},\"ax\",@progbits", "\t.align\t128", f".text.{name}:"], 0
    for line in lines:
        if line.endswith(":"):
            text.append(line)
        else:
            predicate, _, rest = line.rpartition("| ")
            text.append(f"        /*{address:04x}*/        {'@' + predicate.strip() if predicate else '':>12} {rest} ;")
            address += 16
    return text


def count(*lines):
    function, = sass.read_functions(listing(*lines))
    return sass.count(function)


class Sass(unittest.TestCase):
    def test_reads_what_a_thread_loads_and_stores(self):
        found = count("LDG.E.128 R4, desc[UR4][R2.64]", "LDG.E.U16 R8, desc[UR4][R2.64+0x10]", "LDG.E.CONSTANT R9, desc[UR4][R2.64]",
                      "FADD R8, R8, R9", "STG.E.64 desc[UR4][R2.64], R4", "EXIT")
        self.assertEqual((found.widest_load, found.narrow_loads, found.widest_store), (16, 2, 8))
        self.assertEqual(found.in_flight, 16 + 2 + 4)

    def test_the_first_use_ends_what_is_in_flight(self):
        apart = count("LDG.E R4, desc[UR4][R2.64]", "FADD R5, R4, R4", "LDG.E R6, desc[UR4][R2.64+0x4]", "FADD R5, R5, R6", "EXIT")
        together = count("LDG.E R4, desc[UR4][R2.64]", "LDG.E R6, desc[UR4][R2.64+0x4]", "FADD R5, R4, R4", "FADD R5, R5, R6", "EXIT")
        self.assertEqual((apart.in_flight, together.in_flight), (4, 8))

    def test_any_register_of_a_wide_load_is_a_use(self):
        found = count("LDG.E.128 R4, desc[UR4][R2.64]", "FADD R9, R7, R7", "LDG.E.128 R12, desc[UR4][R2.64+0x10]", "FADD R9, R9, R12", "EXIT")
        self.assertEqual(found.in_flight, 16)

    def test_an_address_that_is_loaded_is_used(self):
        found = count("LDG.E.64 R4, desc[UR4][R2.64]", "LDG.E R6, desc[UR4][R4.64]", "FADD R6, R6, R6", "EXIT")
        self.assertEqual(found.in_flight, 8)

    def test_a_register_that_is_loaded_again_was_awaited(self):
        found = count("LDG.E R4, desc[UR4][R2.64]", "LDG.E R4, desc[UR4][R2.64+0x4]", "EXIT")
        self.assertEqual(found.in_flight, 4)

    def test_loops_count_before_what_comes_once(self):
        found = count("LDG.E.128 R4, desc[UR4][R2.64]", "LDG.E.128 R8, desc[UR4][R2.64+0x10]", "FADD R4, R4, R8", ".L_x_0:",
                      "LDG.E R12, desc[UR4][R2.64]", "FADD R4, R4, R12", "P0 | BRA `(.L_x_0)", "EXIT")
        self.assertEqual(found.in_flight, 4)

    def test_the_end_of_a_turn_ends_what_is_in_flight(self):
        found = count(".L_x_0:", "LDG.E R12, desc[UR4][R2.64]", "P0 | BRA `(.L_x_0)", "FADD R4, R4, R12", "EXIT")
        self.assertEqual(found.in_flight, 4)

    def test_a_part_that_may_be_skipped_does_not(self):
        found = count(".L_x_0:", "LDG.E R12, desc[UR4][R2.64]", "P1 | BRA `(.L_x_1)", "LDG.E R13, desc[UR4][R2.64+0x8]", ".L_x_1:",
                      "FADD R4, R13, R12", "P0 | BRA `(.L_x_0)", "EXIT")
        self.assertEqual(found.in_flight, 8)

    def test_finds_what_is_slow(self):
        found = count("DADD R4, R4, R6", "F2F.F64.F32 R4, R5", "MUFU.RCP64H R5, R5", "I2F.F64 R4, R2", "FADD R1, R2, R3", "LD.E R4, desc[UR4][R2.64]",
                      "ST.E desc[UR4][R2.64], R4", "STL [R1], R4", "LDL R4, [R1]", "LDS R4, [R1]", "I2F.U64.RP R4, R4",
                      "CALL.REL.NOINC `($__internal_0_$__cuda_sm20_div_s64)", "CALL.REL.NOINC `($__internal_1_$__cuda_sm20_rcp_rn_f32_slowpath)", "EXIT")
        self.assertEqual((found.doubles, found.generic, found.local, found.long_divisions), (4, 2, 2, 2))

    def test_what_is_called_is_no_part_of_the_kernel(self):
        functions = sass.read_functions(listing("LDG.E R4, desc[UR4][R2.64]", "EXIT", "$__internal_0_$__cuda_sm20_div_s64:", "DADD R4, R4, R6",
                                                name="a") + listing("DADD R4, R4, R6", "EXIT", name="b"))
        self.assertEqual([(f.name, sass.count(f).doubles) for f in functions], [("a", 0), ("b", 1)])

    def test_occupancy_is_what_the_calculator_says(self):
        for registers, shared, architecture, percent in [(32, 0, "sm_90", 100), (33, 0, "sm_90", 75), (64, 0, "sm_90", 50), (94, 0, "sm_90", 25),
                                                         (255, 0, "sm_90", 12), (32, 32768, "sm_90", 75), (32, 32768, "sm_80", 50)]:
            self.assertEqual(sass.occupancy(registers, shared, architecture), percent, (registers, shared, architecture))


class Names(unittest.TestCase):
    def test_rows(self):
        inside = "dtrain::cuda::(anonymous namespace)::"
        for name, row in [
                (f"{inside}update_kernel(dtrain::LossScaleRule, float*)", "update_kernel"),
                (f"void {inside}find_kernel<__half>({inside}SlotTable, float*)", "find_kernel<half>"),
                (f"void {inside}dense_kernel<float, {inside}Affine<float, __half>, __half>(long)", "dense_kernel<f32 of half>"),
                (f"void {inside}dense_kernel<float, {inside}BinaryCall<float, dtrain::functor::formulas::silu_grad>, float, float>(long)",
                 "dense_kernel<activation, f32 of f32 f32>"),
                (f"void {inside}dense_kernel<float, {inside}UnaryCall<float, dtrain::functor::Sin>, float>(long)", "dense_kernel<sine, f32 of f32>"),
                (f"void {inside}strided_kernel<3, {inside}Where<long, float>, long, float, long>(int)", "strided_kernel<3 arrays>"),
                ("void dtrain::cuda::norm::sums_kernel<8, dtrain::cuda::norm::Moments<__half, 8> >(int)", "norm::sums_kernel<Moments,half,8>"),
                (f"void {inside}step_kernel<__half, dtrain::rule::AdamW<float, false> >(int)", "step_kernel<AdamW,half>")]:
            self.assertEqual(names.row_of(name), row)


class Table(unittest.TestCase):
    ROW = {"kernels": 1, "registers": 40, "occupancy": 75, "local": 0, "load": 16, "narrow": 0, "store": 16, "in_flight": 32, "double": 0,
           "generic": 0, "div64": 0}

    def test_worse_in_any_way_is_said(self):
        for column, more_is_better in machine_code.COLUMNS.items():
            for change in (1, -1):
                worse, better = machine_code.compare({"k": self.ROW}, {"k": self.ROW | {column: self.ROW[column] + change}})
                expected = None if more_is_better is None else (change > 0) == more_is_better
                self.assertEqual((len(worse), len(better)), {None: (0, 0), True: (0, 1), False: (1, 0)}[expected], column)
        worse, _ = machine_code.compare({"k": self.ROW}, {"k": self.ROW | {"load": 4}})
        self.assertEqual(worse, ["k: load: expected 16, got 4"])

    def test_rows_that_come_and_go_are_said(self):
        self.assertEqual(machine_code.compare({"k": self.ROW}, {})[0], ["k: expected a kernel, got none"])
        self.assertEqual(machine_code.compare({}, {"k": self.ROW})[0], ["k: expected a row, got none"])

    def test_a_row_is_the_worst_of_its_kernels(self):
        joined = machine_code.worst([self.ROW, self.ROW | {"load": 4, "generic": 2}])
        self.assertEqual((joined["kernels"], joined["load"], joined["generic"], joined["store"]), (2, 4, 2, 16))

    def test_is_read_as_it_was_written(self):
        with tempfile.NamedTemporaryFile("w+") as file:
            file.write(machine_code.table_text({"k": self.ROW}, "nvcc 13.0"))
            file.flush()
            self.assertEqual(machine_code.read_table(file.name), ("nvcc 13.0", {"k": self.ROW}))


if __name__ == "__main__":
    unittest.main()
