mod columns;
mod reader;
