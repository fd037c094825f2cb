//! Shows the operations that inputs of the target `engine_ops` describe, and runs them.

fn main() {
    for path in std::env::args().skip(1) {
        let data = std::fs::read(&path).expect("the input can be read");
        println!("{path}: {}", tidelog_fuzz::show_operations(&data));
        tidelog_fuzz::engine_ops(&data);
    }
}
